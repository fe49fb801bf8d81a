"""What the dashboards have in common: variables, panels, links, annotations.

A panel is a graph or a single value with a unit, a description, and queries that name the series
of the chosen jobs only. Colours are those of Grafana's palette, which is readable in the dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import common, prometheus, stat, table, timeseries
from grafana_foundation_sdk.builders.dashboard import (
    AnnotationQuery,
    Dashboard,
    DashboardLink,
    DatasourceVariable,
    QueryVariable,
    Row,
)
from grafana_foundation_sdk.models.common import (
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    VariableOption,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = DataSourceRef(type_val="prometheus", uid="$datasource")
JOBS = 'namespace=~"$namespace",edl_job=~"$job"'
"""Selects the series of the chosen jobs."""

PAGE = "http://${__field.labels.instance}/"
"""The page of the job that a series is of."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query in PromQL, and how its series are called."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel.

    Attributes:
        unit: as Grafana names it.
        kind: graph, value (the newest one), or table (the newest ones).
        width: in 24ths of the page.
        of_jobs: whether its series lead to the pages of jobs.
    """

    title: str
    description: str
    unit: str
    queries: Sequence[Query]
    kind: str = "graph"
    width: int = 8
    stacked: bool = False
    of_jobs: bool = True


def dashboard(title: str, uid: str, description: str) -> Dashboard:
    """An empty dashboard with the variable of the data source."""
    made = Dashboard(title).uid(uid).description(description).tags(["edl"])
    made = made.time("now-1h", "now").refresh("10s").timezone("browser").readonly()
    made = made.tooltip(DashboardCursorSync.CROSSHAIR)
    others = DashboardLink("Dashboards").type(DashboardLinkType.DASHBOARDS).tags(["edl"])
    made = made.link(others.include_vars(True).keep_time(True).as_dropdown(True))
    return made.with_variable(
        DatasourceVariable("datasource").label("Data source").type("prometheus")
    )


def choice(name: str, label: str, query: str, *, several: bool = True) -> QueryVariable:
    """A variable whose values Prometheus knows."""
    made = QueryVariable(name).label(label).query(query).datasource(SOURCE)
    made = made.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).sort(VariableSort.ALPHABETICAL_ASC)
    if not several:
        return made
    everything = VariableOption(text="All", value="$__all")
    return made.multi(True).include_all(True).all_value(".*").current(everything)


def annotation(name: str, expr: str, color: str) -> AnnotationQuery:
    """Marks on all graphs wherever the query has a value."""
    made = AnnotationQuery().name(name).datasource(SOURCE).expr(expr)
    return made.enable(True).icon_color(color)


def add(target: Dashboard, row: str, panels: Sequence[Panel]) -> Dashboard:
    """A row of panels."""
    target = target.with_row(Row(row))
    for panel in panels:
        target = target.with_panel(_build(panel))
    return target


def _build(panel: Panel) -> timeseries.Panel | stat.Panel | table.Panel:
    kinds = {"graph": _graph, "value": _value, "table": table.Panel}
    made = kinds[panel.kind]()
    made = made.title(panel.title).description(panel.description).unit(panel.unit)
    made = made.datasource(SOURCE).span(panel.width).height(8 if panel.kind == "graph" else 5)
    if panel.kind == "graph" and panel.stacked:
        made = made.stacking(common.StackingConfig().mode("normal")).fill_opacity(30)
    if panel.of_jobs:
        page = DashboardLink("Page of the job").type(DashboardLinkType.LINK)
        made = made.data_links([page.url(PAGE).target_blank(True)])
    for number, query in enumerate(panel.queries):
        asked = prometheus.Dataquery().expr(query.expr).legend_format(query.legend)
        asked = asked.ref_id(chr(ord("A") + number)).datasource(SOURCE)
        if panel.kind == "table":
            asked = asked.format(PromQueryFormat.TABLE)
        made = made.with_target(asked.range() if panel.kind == "graph" else asked.instant())
    return made


def _graph() -> timeseries.Panel:
    legend = common.VizLegendOptions().display_mode(LegendDisplayMode.LIST)
    legend = legend.placement(LegendPlacement.BOTTOM).show_legend(True)
    tooltip = common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING)
    return timeseries.Panel().legend(legend).tooltip(tooltip).fill_opacity(10)


def _value() -> stat.Panel:
    return stat.Panel()
