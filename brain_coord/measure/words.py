"""Plain nouns of which canaries and benchmarks are made: short, common, none a part of another."""

from typing import Final

NOUNS: Final = (
    "amber anchor apple apron arrow autumn badge bamboo banner barrel basket beacon bench berry blanket blossom bottle "
    "branch bridge brush bucket button cabin cactus camera candle canoe canyon carpet castle cedar cellar chair cherry "
    "chimney circle clover coffee collar copper corner cotton cradle crater cricket crystal curtain daisy desert diamond "
    "dragon drawer eagle engine falcon feather fiddle finger flower forest fountain garden garlic ginger glacier goblet "
    "gravel guitar hammer harbor hazel helmet honey hunter island ivory jacket jasper jungle kettle kitten ladder lagoon "
    "lantern lemon lily lizard locket magnet maple marble market meadow melon mirror mitten monkey mountain needle nickel "
    "olive onion orchard oyster paddle palace panther paper parrot peach pebble pencil pepper pigeon pillow planet plum "
    "pocket pony poplar prairie pumpkin puzzle quarry rabbit raven ribbon river robin rocket saddle sailor salmon satin "
    "shadow silver spider spoon squirrel statue summit tailor teapot temple thistle thunder ticket tiger timber tomato "
    "trumpet tulip tunnel turtle valley velvet violin wagon walnut willow window winter zebra"
).split()
