// Manager.metrics() and Manager.metric_samples().
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "cairn/base/metrics.h"
#include "cairn/base/str_cat.h"
#include "python/src/managers.h"

namespace cairn::python {

void bind_metrics(nb::module_& module) {
  using Sample = Metrics::Sample;
  nb::class_<Sample>(module, "MetricSample", "The value of one metric.")
      .def_ro("name", &Sample::name)
      .def_prop_ro(
          "labels",
          [](const Sample& self) {
            nb::dict all;
            for (const auto& [name, value] : self.labels) {
              all[name.c_str()] = value;
            }
            return all;
          },
          nb::sig("def labels(self) -> dict[str, str]"))
      .def_prop_ro(
          "kind", [](const Sample& self) { return std::string(to_string(self.kind)); },
          "`counter`, `gauge` or `histogram`.")
      .def_ro("value", &Sample::value, "Of counters and gauges.")
      .def_prop_ro(
          "count", [](const Sample& self) { return self.histogram.count; }, "Of histograms, as all that follow.")
      .def_prop_ro("sum", [](const Sample& self) { return self.histogram.sum; })
      .def_prop_ro("p50", [](const Sample& self) { return self.histogram.p50; })
      .def_prop_ro("p90", [](const Sample& self) { return self.histogram.p90; })
      .def_prop_ro("p99", [](const Sample& self) { return self.histogram.p99; })
      .def("__repr__", [](const Sample& self) {
        std::string labels;
        for (const auto& [name, value] : self.labels) {
          labels += str_cat(labels.empty() ? "{" : ", ", name, "=", value);
        }
        return str_cat("<cairn.MetricSample ", self.name, labels.empty() ? "" : labels + "}", ">");
      });

  auto manager = nb::borrow<nb::class_<Manager>>(module.attr("Manager"));
  manager.def(
      "metrics",
      [](const Manager& self) {
        const ManagerPtr owner = self.use();
        const GilRelease released;
        return owner->manager.metrics().to_prometheus();
      },
      "All metrics in Prometheus's text format; cairn.prometheus has a collector for prometheus_client.");
  manager.def(
      "metric_samples",
      [](const Manager& self) {
        const ManagerPtr owner = self.use();
        const GilRelease released;
        return owner->manager.metrics().snapshot();
      },
      "All metrics as values, by name, then by labels.");
}

}  // namespace cairn::python
