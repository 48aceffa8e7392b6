"""CLOUD_GPU: hardware that the operator runs, be it Brain Nodes with an operator token or vLLM servers by URL."""

from collections.abc import Callable, Iterable, Set

from brain_coord.classes.backend import OUTPUT_TOKENS, Prospect, Query
from brain_coord.classes.node_class import NodeClass
from brain_coord.classes.samples import ClassSamples
from brain_coord.classes.target import Target
from brain_coord.classes.upstream import Offer
from brain_coord.classes.upstream_class import UpstreamClass
from brain_coord.routing.auto_router import AutoNodeDecision
from brain_coord.routing.node_decision import NodeDecision
from brain_coord.routing.vocabulary import ResourceClass


class CloudClass:
    """The operator's nodes, whose speed is measured and ranked, before the servers, which are only known by address."""

    resource_class = ResourceClass.CLOUD_GPU

    def __init__(self, nodes: NodeClass, servers: UpstreamClass) -> None:
        self.nodes = nodes
        self.servers = servers

    @property
    def samples(self) -> ClassSamples:
        """Of nodes and servers together."""
        return self.nodes.samples

    @property
    def configured(self) -> bool:
        """Whether the operator has a node or a server of its own, reachable or not."""
        return self.nodes.configured or self.servers.configured

    def models(self) -> list[str]:
        """What either offers."""
        return list(dict.fromkeys([*self.nodes.models(), *self.servers.models()]))

    def offers(self) -> Iterable[Offer]:
        """Those of the servers."""
        return self.servers.offers()

    def prospect(self, query: Query, output_tokens: int = OUTPUT_TOKENS, body: bytes = b"") -> Prospect:
        """As whichever of the two would take the request first."""
        if not self.servers.upstreams:
            return self.nodes.prospect(query, output_tokens)
        nodes, servers = self.nodes.prospect(query, output_tokens), self.servers.prospect(query, output_tokens, body)
        if not servers.state.supported:
            return nodes._replace(ranking=(nodes, servers))
        if not nodes.state.supported:
            return servers._replace(ranking=(nodes, servers))
        first = nodes if nodes.state.available or not servers.state.available else servers
        return Prospect(
            first.state,
            node_decision=nodes.node_decision if first is nodes else None,
            wait_s=0.0 if first.state.available else max(nodes.wait_s, servers.wait_s),
            passed_over=nodes.passed_over + servers.passed_over,
            choice=None if first is nodes else servers.choice,
            shortage=servers.shortage,
            ranking=(nodes, servers),
        )

    def target(self, query: Query, prospect: Prospect, passed: Set[str]) -> Target | None:
        """A node while one can take it, then a server."""
        if prospect.ranking is None:
            return self.nodes.target(query, prospect, passed)
        nodes, servers = prospect.ranking
        found = self.nodes.target(query, nodes, passed) if nodes.state.supported else None
        if found is None and servers.state.supported:
            found = self.servers.target(query, servers, passed)
        return found

    def full(self, prospect: Prospect) -> Set[str]:
        """Nodes and servers that lacked nothing but a free slot."""
        if prospect.ranking is None:
            return self.nodes.full(prospect)
        nodes, servers = prospect.ranking
        return self.nodes.full(nodes) | self.servers.full(servers)

    def whole(
        self, query: Query, decided: NodeDecision | AutoNodeDecision
    ) -> Callable[[], NodeDecision | AutoNodeDecision]:
        """Over all of the operator's nodes."""
        return self.nodes.whole(query, decided)
