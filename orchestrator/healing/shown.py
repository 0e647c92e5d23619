"""Gauges as prometheus-client prints them."""

from collections.abc import Mapping

from prometheus_client.core import GaugeMetricFamily, Metric

from orchestrator.releases import release


def labelled(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    """One gauge with a label, and its values."""
    family = GaugeMetricFamily(name, text, labels=[label])
    for value, number in values.items():
        family.add_metric([value], number)
    return family


def build_info() -> Metric:
    """Which release this is."""
    return labelled(
        "mandor_build_info", "1; the version says which release this is.", "version", {release("mandor"): 1}
    )
