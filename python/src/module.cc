// cairn._cairn: the native half of the Python package; python/cairn/__init__.py shows it to users.
#include "python/src/binding.h"

NB_MODULE(_cairn, module) {
  module.doc() = "Bindings of Cairn. Use the package `cairn`.";
  module.attr("__version__") = CAIRN_VERSION;
  cairn::python::bind_errors(module);
}
