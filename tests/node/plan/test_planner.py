"""Which models on which cards, with what, and why not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brain_node.contract.footprint import CUDA_RUNTIME_BYTES
from brain_node.plan.machine import Machine
from brain_node.plan.planner import plan, survey
from brain_node.plan.records import Placement, PlanRequest, Refusal
from tests.node.plan.conftest import GIB, MIB, SHIPPED, card

SHAPE = {"layers": 32, "attention_heads": 64, "kv_heads": 8, "head_dim": 128}


def ask(*models, **fields):
    return PlanRequest(models=models, **fields)


def indices(placements):
    return [placement.gpu_indices for placement in placements]


class TestOneModelOnOneCard:
    def test_gets_the_card_its_share_and_its_context(self):
        machine = Machine(cards=(card(0, 24564),))
        (placed,) = plan(SHIPPED, machine, ask("qwen/qwen2.5-7b-instruct")).placements
        assert (placed.gpu_uuids, placed.tensor_parallel, placed.max_model_len) == (("GPU-0000",), 1, 32768)
        assert placed.gpu_memory_utilization == 0.95
        assert placed.kv_cache_tokens >= placed.max_model_len

    @pytest.mark.parametrize(
        "model",
        [
            "qwen/qwen2.5-7b-instruct",
            "qwen/qwen2.5-32b-instruct-awq",
            "qwen/qwen2.5-coder-32b-instruct-awq",
            "qwen/qwen3-8b",
            "meta-llama/llama-3.1-8b-instruct",
            "mistralai/mistral-7b-instruct-v0.3",
            "openai/gpt-oss-20b",
        ],
    )
    @pytest.mark.case("A-06")
    def test_a_24_gb_card_with_error_correction_serves_what_is_meant_for_24_gb(self, model):
        machine = Machine(cards=(card(0, 22919),))
        assert [placed.model.id for placed in plan(SHIPPED, machine, ask(model)).placements] == [model]

    def test_a_large_card_serves_more_context_than_the_floor(self):
        (placed,) = plan(SHIPPED, Machine(cards=(card(0, 143771),)), ask("qwen/qwen3-8b")).placements
        assert placed.max_model_len == 32768
        assert placed.slots == 32

    def test_the_context_grows_only_while_four_full_requests_fit(self):
        (placed,) = plan(SHIPPED, Machine(cards=(card(0, 40960),)), ask("qwen/qwen2.5-14b-instruct")).placements
        assert placed.kv_cache_tokens >= 4 * placed.max_model_len or placed.max_model_len == placed.model.context

    def test_the_operator_may_ask_for_less_context_to_fit(self):
        machine = Machine(cards=(card(0, 32607, 30000),))
        assert plan(SHIPPED, machine, ask("qwen/qwen2.5-14b-instruct")).placements == ()
        (placed,) = plan(SHIPPED, machine, ask("qwen/qwen2.5-14b-instruct", context=2048)).placements
        assert placed.max_model_len == 2048

    def test_more_context_than_the_model_can_take_is_cut_to_what_it_can(self):
        (placed,) = plan(SHIPPED, Machine(cards=(card(0, 81559),)), ask("qwen/qwen3-8b", context=10**6)).placements
        assert placed.max_model_len == 32768

    def test_its_process_sees_its_own_card_alone(self):
        machine = Machine(cards=(card(0, 8188), card(1, 24564)))
        (placed,) = plan(SHIPPED, machine, ask("qwen/qwen2.5-7b-instruct", replicas=False)).placements
        assert placed.environment == {"CUDA_VISIBLE_DEVICES": "GPU-0001", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}

    def test_flags_are_whole_and_none_comes_twice(self, catalog_of):
        catalog = catalog_of(m={"args": ["--max-model-len", "2048", "--max-num-seqs", "3", "--enforce-eager"]})
        (placed,) = plan(catalog, Machine(cards=(card(0, 8188),)), ask("acme/m")).placements
        assert (placed.max_model_len, placed.slots) == (2048, 3)
        flags = [word for word in placed.flags if word.startswith("--")]
        assert len(flags) == len(set(flags))
        assert {"--gpu-memory-utilization", "--tensor-parallel-size", "--enforce-eager"} <= set(flags)

    def test_asked_slots_are_kept(self):
        (placed,) = plan(SHIPPED, Machine(cards=(card(0, 81559),)), ask("qwen/qwen3-8b", slots=5)).placements
        assert placed.slots == 5


@pytest.mark.case("A-06")
class TestNameplateAgainstFreeBytes:
    def test_a_model_that_needs_all_of_8_gib_is_refused_with_both_numbers(self, catalog_of):
        catalog = catalog_of(m={"min_vram_mib": 8192})
        (refused,) = plan(catalog, Machine(cards=(card(0, 8188),)), ask("acme/m")).refusals
        assert refused.code == "not_enough_memory"
        assert (refused.needed_bytes, refused.free_bytes) == (8192 * MIB, 8188 * MIB)
        assert "needs 8.000 GiB" in refused.message
        assert "7.996 GiB" in refused.message
        assert "GPU 0" in refused.message
        assert "8 GB" in refused.message

    def test_a_display_on_the_card_counts_at_launch(self, catalog_of):
        catalog = catalog_of(m={"min_vram_mib": 7800})
        assert plan(catalog, Machine(cards=(card(0, 8188),)), ask("acme/m")).placements
        (refused,) = plan(catalog, Machine(cards=(card(0, 8188, 8188 - 612),)), ask("acme/m")).refusals
        assert "needs 7.6 GiB" in refused.message
        assert "7.4 GiB of 8.0 GiB" in refused.message


@pytest.mark.case("B-10")
class TestMemoryTakenByOthers:
    TOTAL, FREE = 22.05 * 1024, 19.77 * 1024

    def test_the_share_is_lowered_to_what_is_free(self):
        machine = Machine(cards=(card(0, int(self.TOTAL), self.FREE),))
        (placed,) = plan(SHIPPED, machine, ask("qwen/qwen2.5-7b-instruct")).placements
        assert placed.gpu_memory_utilization < 0.9
        assert placed.gpu_memory_utilization * int(self.TOTAL) * MIB + CUDA_RUNTIME_BYTES <= self.FREE * MIB

    def test_or_it_is_refused_before_launch_with_numbers(self):
        machine = Machine(cards=(card(0, int(self.TOTAL), self.FREE),))
        (refused,) = plan(SHIPPED, machine, ask("qwen/qwen2.5-32b-instruct-awq")).refusals
        assert "needs 21.3 GiB" in refused.message
        assert "weights 18.0 GiB, KV cache of 8192 tokens 2.0 GiB, activations and driver 1.3 GiB" in refused.message
        assert "19.8 GiB of 22.0 GiB" in refused.message


@pytest.mark.case("B-08")
class TestSeveralCardsForOneModel:
    @pytest.fixture
    def big(self, catalog_of):
        # 64 heads, two and a half cards of 24 GB
        return catalog_of(m={"min_vram_mib": 58000, "weights_bytes": 55 * GIB, "params_b": 29.5, **SHAPE})

    def test_three_cards_never_share_64_heads(self, big):
        answer = plan(big, Machine(cards=tuple(card(i, 24564) for i in range(3))), ask("acme/m"))
        assert answer.placements == ()
        (refused,) = answer.refusals
        assert refused.code == "heads_do_not_divide"
        assert "3 cards cannot share its 64 heads" in refused.message
        assert "on 2 cards it needs" in refused.message

    def test_four_cards_do(self, big):
        (placed,) = plan(big, Machine(cards=tuple(card(i, 24564) for i in range(4))), ask("acme/m")).placements
        assert (placed.tensor_parallel, placed.gpu_indices) == (4, (0, 1, 2, 3))

    def test_the_smallest_card_sets_the_budget(self, big):
        cards = (card(0, 24564), card(1, 24564), card(2, 8188))
        (refused,) = plan(big, Machine(cards=cards), ask("acme/m")).refusals
        assert "3 cards cannot share" in refused.message
        (too_small,) = plan(big, Machine(cards=(*cards, card(3, 24564))), ask("acme/m")).refusals
        assert "on 4 cards it needs" in too_small.message
        assert "the smallest has 8.0 GiB" in too_small.message

    @pytest.fixture
    def middling(self, catalog_of):
        return catalog_of(m={"min_vram_mib": 26000, "weights_bytes": 20 * GIB, **SHAPE})

    def test_unlike_cards_take_one_fraction_that_every_card_can_bear(self, middling):
        cards = (card(0, 24564, 20000), card(1, 16384))
        (placed,) = plan(middling, Machine(cards=cards), ask("acme/m")).placements
        assert placed.tensor_parallel == 2
        for each in cards:
            taken = placed.gpu_memory_utilization * each.total_bytes + CUDA_RUNTIME_BYTES
            assert placed.needed_bytes <= taken + MIB * 10
            assert taken <= each.free_bytes

    def test_a_larger_card_that_cannot_give_that_fraction_is_the_reason(self, middling):
        (refused,) = plan(middling, Machine(cards=(card(0, 24564, 17000), card(1, 16384))), ask("acme/m")).refusals
        assert "the engine takes the same share of both" in refused.message
        assert "16.6 GiB free on GPU 0" in refused.message

    def test_few_cards_are_preferred_to_many(self):
        machine = Machine(cards=tuple(card(i, 81559) for i in range(4)))
        (placed,) = plan(SHIPPED, machine, ask("qwen/qwen2.5-32b-instruct", replicas=False)).placements
        assert placed.tensor_parallel == 1

    def test_70b_takes_two_80_gb_cards(self):
        machine = Machine(cards=(card(0, 8188), card(1, 81559), card(2, 81559)))
        (placed,) = plan(SHIPPED, machine, ask("meta-llama/llama-3.3-70b-instruct")).placements
        assert placed.gpu_indices == (1, 2)

    @pytest.mark.parametrize("alone", ["slices", "unified"])
    def test_slices_and_unified_chips_are_never_joined(self, big, alone):
        machine = Machine(cards=tuple(card(i, 24564, alone=True) for i in range(4)))
        assert plan(big, machine, ask("acme/m")).placements == ()

    def test_a_model_of_unknown_shape_stays_on_one_card(self, catalog_of):
        catalog = catalog_of(m={"min_vram_mib": 30000})
        (refused,) = plan(catalog, Machine(cards=(card(0, 24564), card(1, 24564))), ask("acme/m")).refusals
        assert refused.code == "not_enough_memory"


class TestSeveralModels:
    @pytest.mark.case("A-08")
    def test_each_goes_where_it_fits_whatever_the_order(self):
        machine = Machine(cards=(card(0, 8188), card(1, 24564)))
        for names in (
            ("qwen/qwen2.5-7b-instruct-awq", "qwen/qwen2.5-7b-instruct"),
            ("qwen/qwen2.5-7b-instruct", "qwen/qwen2.5-7b-instruct-awq"),
        ):
            answer = plan(SHIPPED, machine, ask(*names))
            assert {p.model.id: p.gpu_indices for p in answer.placements} == {
                "qwen/qwen2.5-7b-instruct-awq": (0,),
                "qwen/qwen2.5-7b-instruct": (1,),
            }

    def test_share_a_card_only_when_there_is_none_of_their_own(self):
        names = ("qwen/qwen3-0.6b", "qwen/qwen3-1.7b", "qwen/qwen2.5-1.5b-instruct")
        placements = plan(SHIPPED, Machine(cards=(card(0, 24564), card(1, 24564))), ask(*names)).placements
        assert len({p.gpu_uuids for p in placements}) == 2
        for each in (card(0, 24564), card(1, 24564)):
            taken = [p for p in placements if each.uuid in p.gpu_uuids]
            total = sum(p.gpu_memory_utilization * each.total_bytes + CUDA_RUNTIME_BYTES for p in taken)
            assert total <= each.free_bytes

    def test_one_that_the_others_leave_no_room_for_is_told_so(self):
        names = ("qwen/qwen2.5-7b-instruct", "qwen/qwen3-8b")
        answer = plan(SHIPPED, Machine(cards=(card(0, 24564),)), ask(*names))
        assert len(answer.placements) == 1
        assert [refused.code for refused in answer.refusals] == ["cards_taken"]

    def test_one_named_twice_is_placed_once(self):
        machine = Machine(cards=(card(0, 24564),))
        assert len(plan(SHIPPED, machine, ask("qwen/qwen3-0.6b", "qwen/qwen3-0.6b")).placements) == 1


class TestReplicas:
    def test_equal_cards_run_copies(self):
        machine = Machine(cards=tuple(card(i, 24564) for i in range(4)))
        placements = plan(SHIPPED, machine, ask("qwen/qwen3-8b")).placements
        assert indices(placements) == [(0,), (1,), (2,), (3,)]
        assert [placed.replica for placed in placements] == [0, 1, 2, 3]

    def test_unlike_cards_do_not(self):
        machine = Machine(cards=(card(0, 24564), card(1, 49140)))
        assert len(plan(SHIPPED, machine, ask("qwen/qwen3-8b")).placements) == 1

    def test_models_take_turns(self):
        machine = Machine(cards=tuple(card(i, 24564) for i in range(4)))
        placements = plan(SHIPPED, machine, ask("qwen/qwen3-8b", "qwen/qwen2.5-7b-instruct")).placements
        assert (
            sorted(placed.model.id for placed in placements) == ["qwen/qwen2.5-7b-instruct"] * 2 + ["qwen/qwen3-8b"] * 2
        )

    def test_a_card_that_others_use_too_much_of_is_left_alone(self):
        machine = Machine(cards=(card(0, 24564), card(1, 24564, 9000)))
        assert indices(plan(SHIPPED, machine, ask("qwen/qwen3-8b")).placements) == [(0,)]

    def test_can_be_declined(self):
        machine = Machine(cards=(card(0, 24564), card(1, 24564)))
        assert len(plan(SHIPPED, machine, ask("qwen/qwen3-8b", replicas=False)).placements) == 1


class TestOldCards:
    def test_one_that_the_engine_has_no_kernels_for_is_refused_with_both_generations(self):
        machine = Machine(cards=(card(0, 24576, name="Tesla P40", compute_capability=(6, 1)),))
        (refused,) = plan(SHIPPED, machine, ask("qwen/qwen2.5-7b-instruct")).refusals
        assert refused.code == "card_too_old"
        assert "7.5" in refused.message
        assert "6.1" in refused.message

    def test_one_without_bfloat16_is_told_to_use_half(self):
        machine = Machine(cards=(card(0, 15360, compute_capability=(7, 5)),))
        (placed,) = plan(SHIPPED, machine, ask("qwen/qwen3-0.6b")).placements
        assert placed.args[-2:] == ("--dtype", "half")

    def test_a_card_that_does_not_tell_is_not_refused(self):
        machine = Machine(cards=(card(0, 24564, compute_capability=None),))
        assert plan(SHIPPED, machine, ask("qwen/qwen2.5-32b-instruct-awq")).placements

    def test_a_model_avoids_the_card_that_is_too_old_for_it(self):
        machine = Machine(cards=(card(0, 32768, compute_capability=(7, 5)), card(1, 24564)))
        (placed,) = plan(SHIPPED, machine, ask("qwen/qwen2.5-32b-instruct-awq")).placements
        assert placed.gpu_indices == (1,)


class TestWithoutCards:
    MACHINE = Machine(ram_total_bytes=24 * GIB, ram_available_bytes=20 * GIB, cpu_count=2)

    def test_small_models_run_in_ram(self):
        (placed,) = plan(SHIPPED, self.MACHINE, ask("huggingfacetb/smollm2-135m-instruct")).placements
        assert (placed.device, placed.gpu_uuids, placed.gpu_memory_utilization) == ("cpu", (), None)
        assert placed.kv_cache_bytes >= placed.model.architecture.kv_bytes(placed.max_model_len)
        assert "--kv-cache-memory-bytes" in placed.flags
        assert placed.environment["CUDA_VISIBLE_DEVICES"] == ""

    def test_others_need_a_card(self):
        (refused,) = plan(SHIPPED, self.MACHINE, ask("qwen/qwen2.5-7b-instruct")).refusals
        assert refused.code == "needs_gpu"

    def test_too_little_ram_is_told_in_numbers(self):
        tight = Machine(ram_total_bytes=4 * GIB, ram_available_bytes=3 * GIB, cpu_count=8)
        (refused,) = plan(SHIPPED, tight, ask("qwen/qwen2.5-1.5b-instruct")).refusals
        assert refused.code == "not_enough_ram"
        assert "needs 4.1 GiB of RAM, and 2.0 GiB can be taken" in refused.message

    def test_several_share_the_ram(self):
        names = ("huggingfacetb/smollm2-135m-instruct", "qwen/qwen3-0.6b", "qwen/qwen2.5-1.5b-instruct")
        placements = plan(SHIPPED, self.MACHINE, ask(*names)).placements
        assert len(placements) == 3
        assert sum(placed.budget_bytes for placed in placements) <= self.MACHINE.ram_available_bytes

    def test_an_entry_of_unknown_shape_runs_too(self, catalog_of):
        catalog = catalog_of(m={"device": "any", "min_vram_mib": 64})
        (placed,) = plan(catalog, self.MACHINE, ask("acme/m")).placements
        assert (placed.device, placed.max_model_len) == ("cpu", 4096)

    def test_a_cpu_engine_beside_a_card_is_planned_in_ram(self):
        machine = Machine(cards=(card(0, 24564),), ram_total_bytes=24 * GIB, ram_available_bytes=20 * GIB)
        (placed,) = plan(SHIPPED, machine, ask("qwen/qwen3-0.6b", device="cpu")).placements
        assert placed.device == "cpu"

    def test_a_model_for_cpus_is_not_put_on_a_card(self, catalog_of):
        catalog = catalog_of(m={"device": "cpu"})
        (refused,) = plan(catalog, Machine(cards=(card(0, 24564),)), ask("acme/m")).refusals
        assert refused.code == "needs_cpu_engine"


class TestAuto:
    @pytest.mark.parametrize(
        ("total_mib", "model"),
        [
            (8188, "qwen/qwen2.5-7b-instruct-awq"),
            (16303, "openai/gpt-oss-20b"),
            (24564, "qwen/qwen2.5-32b-instruct-awq"),
            (81559, "qwen/qwen2.5-32b-instruct"),
        ],
    )
    def test_takes_the_largest_model_that_serves_two_people(self, total_mib, model):
        (placed,) = plan(SHIPPED, Machine(cards=(card(0, total_mib, total_mib - 300),))).placements
        assert placed.model.id == model

    def test_fills_equal_cards_with_copies_and_unlike_ones_with_what_suits_them(self):
        machine = Machine(cards=(card(0, 24564), card(1, 8188), card(2, 24564)))
        placements = plan(SHIPPED, machine).placements
        assert [(placed.gpu_indices, placed.model.id) for placed in placements] == [
            ((0,), "qwen/qwen2.5-32b-instruct-awq"),
            ((2,), "qwen/qwen2.5-32b-instruct-awq"),
            ((1,), "qwen/qwen2.5-7b-instruct-awq"),
        ]

    def test_never_takes_a_mock_a_gated_model_or_a_licence_that_a_person_should_read(self):
        machine = Machine(cards=tuple(card(i, 143771) for i in range(2)))
        for placed in plan(SHIPPED, machine).placements:
            assert not placed.model.mock
            assert not placed.model.gated
            assert placed.model.license in {"apache-2.0", "mit"}

    @pytest.mark.parametrize(
        ("cores", "model"),
        [(2, "huggingfacetb/smollm2-135m-instruct"), (8, "qwen/qwen3-0.6b"), (64, "qwen/qwen2.5-1.5b-instruct")],
    )
    def test_on_a_cpu_takes_what_it_can_answer_with_in_good_time(self, cores, model):
        machine = Machine(ram_total_bytes=64 * GIB, ram_available_bytes=60 * GIB, cpu_count=cores)
        (placed,) = plan(SHIPPED, machine).placements
        assert placed.model.id == model

    def test_joins_cards_only_where_no_model_fits_one(self, catalog_of):
        catalog = catalog_of(m={"min_vram_mib": 30000, "weights_bytes": 24 * GIB, **SHAPE})
        (placed,) = plan(catalog, Machine(cards=(card(0, 24564), card(1, 24564)))).placements
        assert placed.tensor_parallel == 2

    def test_says_why_when_there_is_nothing(self):
        (refused,) = plan(SHIPPED, Machine(cards=(card(0, 1024),))).refusals
        assert refused.code == "not_enough_memory"
        assert "GiB" in refused.message


class TestNames:
    def test_an_unknown_model_is_told_what_was_meant(self):
        (refused,) = plan(SHIPPED, Machine(cards=(card(0, 24564),)), ask("qwen/qwen2.5-7b")).refusals
        assert refused.code == "unknown_model"
        assert "qwen/qwen2.5-7b-instruct" in refused.next_step

    def test_the_mock_is_no_model(self):
        (refused,) = plan(SHIPPED, Machine(cards=(card(0, 24564),)), ask("brain/mock")).refusals
        assert refused.code == "mock_model"


class TestSurvey:
    def test_answers_for_every_model_of_the_catalog_in_its_order(self):
        answers = survey(SHIPPED, Machine(cards=(card(0, 24564), card(1, 24564))))
        names = [each.model.id if isinstance(each, Placement) else each.model_id for each in answers]
        assert names == [model.id for model in SHIPPED]

    def test_every_refusal_has_a_next_step(self):
        for machine in (Machine(), Machine(cards=(card(0, 6144),))):
            for answer in survey(SHIPPED, machine):
                if isinstance(answer, Refusal):
                    assert answer.next_step
                    assert "\n" not in answer.message


machines = st.lists(
    st.tuples(
        st.sampled_from([4096, 8188, 16303, 22919, 24564, 49140, 81559]),
        st.floats(0.0, 1.0),
        st.sampled_from([None, (6, 1), (7, 5), (8, 6), (9, 0)]),
        st.booleans(),
    ),
    max_size=6,
).map(
    lambda rows: Machine(
        cards=tuple(
            card(i, total, total * share, compute_capability=capability, alone=alone)
            for i, (total, share, capability, alone) in enumerate(rows)
        ),
        ram_total_bytes=32 * GIB,
        ram_available_bytes=16 * GIB,
        cpu_count=8,
    )
)
names = st.lists(st.sampled_from([model.id for model in SHIPPED]), min_size=1, max_size=5, unique=True)


class TestOnAnyMachine:
    @given(machines, names, st.sampled_from([None, 1024, 65536]))
    def test_no_card_is_promised_twice_and_nothing_is_left_unsaid(self, machine, models, context):
        answer = plan(SHIPPED, machine, ask(*models, context=context))
        for each in machine.cards:
            taken = sum(
                placed.gpu_memory_utilization * each.total_bytes + CUDA_RUNTIME_BYTES
                for placed in answer.placements
                if each.uuid in placed.gpu_uuids
            )
            assert taken <= each.free_bytes
        for placed in answer.placements:
            assert placed.model.architecture.divides(placed.tensor_parallel)
            assert placed.max_model_len <= min(placed.kv_cache_tokens, placed.model.max_context)
            assert placed.slots >= 1
        firsts = [placed.model.id for placed in answer.placements if placed.replica == 0]
        assert sorted([*firsts, *(refused.model_id for refused in answer.refusals)]) == sorted(models)

    @given(machines, names)
    def test_the_same_question_has_the_same_answer(self, machine, models):
        assert plan(SHIPPED, machine, ask(*models)) == plan(SHIPPED, machine, ask(*models))

    @given(machines)
    def test_auto_finds_something_exactly_when_some_open_model_fits(self, machine):
        answer = plan(SHIPPED, machine)
        fits = [
            each
            for each in survey(SHIPPED, machine)
            if isinstance(each, Placement) and each.model.license in {"apache-2.0", "mit"}
        ]
        if answer.placements:
            assert fits
        else:
            assert answer.refusals
