// The exceptions: one family, one class for each error code.
#include <nanobind/stl/string.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <string>

#include "python/src/binding.h"

namespace cairn::python {
namespace {

struct ExceptionClass {
  ErrorCode code;
  const char* name;
  const char* base;  // the built-in exception that Python programs expect here; null for none
  const char* doc;
};

constexpr ExceptionClass kClasses[] = {
    {ErrorCode::kInvalidArgument, "InvalidArgumentError", "ValueError", "An argument is wrong, whatever the state."},
    {ErrorCode::kFailedPrecondition, "FailedPreconditionError", "RuntimeError",
     "The object is not in a state for the call."},
    {ErrorCode::kNotFound, "NotFoundError", "LookupError", "What was named does not exist."},
    {ErrorCode::kAlreadyExists, "AlreadyExistsError", nullptr, "What was to be made exists."},
    {ErrorCode::kExhausted, "ExhaustedError", nullptr,
     "A capacity, quota or budget is used up; retry after a release."},
    {ErrorCode::kOutOfRange, "OutOfRangeError", "IndexError", "A position, index or number is too large."},
    {ErrorCode::kCorrupt, "CorruptError", nullptr, "Bytes from outside do not decode."},
    {ErrorCode::kUnavailable, "UnavailableError", nullptr, "A device, driver or system facility is missing."},
    {ErrorCode::kIo, "IoError", "OSError", "The system refused or broke off a read, write or copy."},
    {ErrorCode::kExpired, "ExpiredError", "TimeoutError", "The deadline passed first."},
    {ErrorCode::kCancelled, "CancelledError", nullptr, "The caller took it back first."},
};

std::array<PyObject*, std::size(kClasses)> g_exceptions = {};  // references that are never dropped
std::atomic<std::uint64_t> g_forks{0};

}  // namespace

std::uint64_t forks() { return g_forks.load(std::memory_order_relaxed); }

void raise(const Error& error) {
  PyObject* type = g_exceptions[static_cast<std::size_t>(error.code)];
  PyErr_SetString(type, error.message.c_str());
  throw nb::python_error();
}

void raise(ErrorCode code, std::string message) { raise(Error{code, std::move(message)}); }

void bind_errors(nb::module_& module) {
  pthread_atfork(nullptr, nullptr, [] { g_forks.fetch_add(1, std::memory_order_relaxed); });

  const std::string prefix = nb::cast<std::string>(module.attr("__name__")) + ".";
  PyObject* family = PyErr_NewExceptionWithDoc(
      (prefix + "Error").c_str(), "What happened, to what, and what to do. `code` is the name of the error code.",
      nullptr, nullptr);
  nb::object error = nb::steal(family);
  error.attr("code") = "";
  module.attr("Error") = error;
  const nb::object builtins = nb::module_::import_("builtins");
  for (std::size_t i = 0; i < std::size(kClasses); ++i) {
    const ExceptionClass& made = kClasses[i];
    const nb::object bases = made.base == nullptr ? nb::object(nb::make_tuple(error))
                                                  : nb::object(nb::make_tuple(error, builtins.attr(made.base)));
    const std::string name = prefix + made.name;
    nb::object type = nb::steal(PyErr_NewExceptionWithDoc(name.c_str(), made.doc, bases.ptr(), nullptr));
    type.attr("code") = nb::str(to_string(made.code).data());
    module.attr(made.name) = type;
    g_exceptions[static_cast<std::size_t>(made.code)] = type.release().ptr();
  }
}

}  // namespace cairn::python
