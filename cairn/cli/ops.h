// `cairn ops`: a script of operations on a simulated KvManager, one JSON object a line in, one answer a line out.
//
// Does:     config {capacity, block_size, eviction}   the first line; eviction is the name of a policy
//           new {seq, tokens, max_output}             a sequence; max_output may be left out
//           alloc {seq, tokens}                       allocates its first tokens, as far as there is room
//           push {seq, token}                         appends a token, and undoes that where there is no room
//           preempt {seq}, free {seq}                 lets go of its blocks; keeps it, or forgets it
//           use {seq, blocks}, deref {seq, blocks}    takes and releases its full blocks by index, one by one
//           cost {seq}                                what its prompt would cost
//           An answer has the result of the line, the events it published, and the counts after it.
// Fails:    at the first line that is no operation, with its number: everything before it is answered, it is not.
#pragma once

#include <iosfwd>

#include "cairn/base/result.h"
#include "cairn/sim/kv_manager.h"

namespace cairn::cli {

struct OpsOptions {
  sim::Profile profile = sim::Profile::kSeed;
};

[[nodiscard]] Status run_ops(const OpsOptions& options, std::istream& script, std::ostream& answers);

}  // namespace cairn::cli
