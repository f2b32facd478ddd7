// Binds a struct of figures: read-only fields, equality, a repr that shows them all, and to_dict().
#pragma once

#include <nanobind/nanobind.h>

#include <tuple>

#include "python/src/binding.h"

namespace cairn::python {

// A field: its name, a pointer to the member, or a function that computes it, and its docstring.
template <typename Read>
struct Field {
  const char* name;
  Read read;
  const char* doc;
};
template <typename Read>
Field(const char*, Read, const char*) -> Field<Read>;

template <typename T, typename... Reads>
nb::class_<T> bind_record(nb::module_& module, const char* name, const char* doc, Field<Reads>... fields) {
  nb::class_<T> bound(module, name, doc);
  const auto bind_field = [&bound](const auto& field) {
    if constexpr (std::is_member_object_pointer_v<decltype(field.read)>) {
      bound.def_ro(field.name, field.read, field.doc);
    } else {
      bound.def_prop_ro(field.name, field.read, field.doc);
    }
  };
  (bind_field(fields), ...);
  const nb::tuple names = nb::make_tuple(fields.name...);
  const auto to_dict = [names](nb::handle self) {
    nb::dict values;
    for (const nb::handle field : names) {
      values[field] = self.attr(field);
    }
    return values;
  };
  bound.def("to_dict", to_dict, nb::sig("def to_dict(self) -> dict[str, typing.Any]"), "The fields by name.");
  bound.def("__repr__", [names](nb::handle self) {
    nb::list parts;
    for (const nb::handle field : names) {
      parts.append(nb::str("{}={!r}").format(field, self.attr(field)));
    }
    return nb::str("cairn.{}({})").format(self.type().attr("__name__"), nb::str(", ").attr("join")(parts));
  });
  return bound;
}

}  // namespace cairn::python
