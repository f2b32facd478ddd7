// cairn._cairn: the native half of the Python package; python/cairn/__init__.py shows it to users.
#include "python/src/binding.h"
#include "python/src/keys.h"
#include "python/src/managers.h"
#include "python/src/pool.h"

NB_MODULE(_cairn, module) {
  module.doc() = "Bindings of Cairn. Use the package `cairn`.";
  module.attr("__version__") = CAIRN_VERSION;
  cairn::python::bind_errors(module);
  cairn::python::bind_keys(module);
  cairn::python::bind_tokens(module);
  cairn::python::bind_engines(module);
  cairn::python::bind_pool(module);
  cairn::python::bind_allocator(module);
  cairn::python::bind_manager(module);
  cairn::python::bind_status(module);
  cairn::python::bind_metrics(module);
  cairn::python::bind_memory(module);
  cairn::python::bind_wakeups(module);
  cairn::python::bind_loads(module);
  cairn::python::bind_pages(module);
  cairn::python::bind_events(module);
  cairn::python::bind_scheduler(module);
  cairn::python::bind_worker(module);
  cairn::python::bind_engine_requests(module);
  cairn::python::bind_trace(module);
  cairn::python::bind_probes(module);
  cairn::python::bind_bench(module);
}
