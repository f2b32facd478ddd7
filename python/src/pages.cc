// Pages of an engine's own host memory: Manager.store_pages() and Manager.fetch_pages().
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cairn/base/deadline.h"
#include "python/src/duration.h"
#include "python/src/keys.h"
#include "python/src/managers.h"

namespace cairn::python {

using namespace nb::literals;  // NOLINT(google-build-using-namespace): "name"_a

namespace {

using Numbers = nb::ndarray<const std::uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Copy = Result<std::vector<bool>> (KvBlockManager::*)(const PageList&, TimePoint) const;

template <Copy copy>
nb::list copy_pages(const Manager& manager, const KeysArgument& keys, const Numbers& parts, const Numbers& sizes,
                    std::optional<double> deadline) {
  std::vector<std::byte*> addresses(parts.shape(0));
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    addresses[i] = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(parts.data()[i]));  // NOLINT
  }
  const PageList pages{.keys = keys.get(), .parts = addresses, .part_bytes = {sizes.data(), sizes.shape(0)}};
  const ManagerPtr owner = manager.use();
  const Duration longest = deadline ? duration_of(*deadline) : owner->manager.config().onboard.deadline;
  Result<std::vector<bool>> outcome = [&] {
    const GilRelease released;
    return (owner->manager.*copy)(pages, deadline_after(steady_clock().now(), longest));
  }();
  nb::list all;
  for (const bool done : value_or_raise(std::move(outcome))) {
    all.append(nb::bool_(done));
  }
  return all;
}

}  // namespace

void bind_pages(nb::module_& module) {
  auto manager = nb::borrow<nb::class_<Manager>>(module.attr("Manager"));
  manager.def("store_pages", &copy_pages<&KvBlockManager::store_pages>, "keys"_a, "parts"_a, "sizes"_a, nb::kw_only(),
              "deadline"_a = nb::none(),
              nb::sig("def store_pages(self, keys: Keys | collections.abc.Sequence[Key], parts: "
                      "numpy.typing.NDArray[numpy.uint64], sizes: numpy.typing.NDArray[numpy.uint64], *, deadline: "
                      "float | None = None) -> list[bool]"),
              R"(Stores pages of the caller's memory, one block each, and says for each page whether a tier has it now.

`parts` are addresses and `sizes` their bytes: the parts of the first page, then those of the second and so on, as many for each.
The parts of a page are together as long as a block. The pages go through the host tier, which may be small, to the disk; the call
waits for that, `deadline` seconds at most (default: onboard.deadline). Pages that are stored already are not copied. The memory
must not change during the call.)");
  manager.def("fetch_pages", &copy_pages<&KvBlockManager::fetch_pages>, "keys"_a, "parts"_a, "sizes"_a, nb::kw_only(),
              "deadline"_a = nb::none(),
              nb::sig("def fetch_pages(self, keys: Keys | collections.abc.Sequence[Key], parts: "
                      "numpy.typing.NDArray[numpy.uint64], sizes: numpy.typing.NDArray[numpy.uint64], *, deadline: "
                      "float | None = None) -> list[bool]"),
              R"(Copies pages to the caller's memory, and says for each page whether its bytes are there, verified.

Arguments as in store_pages(). If a page is not there, its memory may have changed and must not be used. Nothing writes to the
memory once the call has returned.)");
}

}  // namespace cairn::python
