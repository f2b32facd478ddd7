"""The metrics of managers for prometheus_client, which has to be installed.

    import prometheus_client
    from cairn.prometheus import CairnCollector

    prometheus_client.REGISTRY.register(CairnCollector(manager))
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from ._cairn import Manager


class CairnCollector(Collector):
    """Collects the metrics of one or more managers; those of a manager that is closed are left out.

    Give several managers of one process different dp_ranks, so that their metrics have different labels.
    """

    def __init__(self, *managers: Manager) -> None:
        self._managers = managers

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Metric] = {}
        for manager in self._managers:
            if manager.closed:
                continue
            for family in text_string_to_metric_families(manager.metrics()):
                families.setdefault(family.name, Metric(family.name, family.documentation, family.type)).samples.extend(
                    family.samples
                )
        return families.values()
