"""The link and the slots of a node that nobody talks to."""


class NoLink:
    async def send(self, message): ...
    async def close(self, code, reason): ...


class NoSlots:
    open = 0

    def close(self, reason): ...
