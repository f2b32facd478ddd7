// `cairn ctl`: asks and changes a running manager over its HTTP port.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"

namespace cairn::cli {

// Where a manager listens, and the token for changes.
struct CtlTarget {
  std::string address = {};     // as http.listen
  std::string token_file = {};  // empty: the environment, CAIRN_HTTP_TOKEN or CAIRN_HTTP_TOKEN_FILE
};
// Fills in what is not given: by the environment, else the default address.
void complete(CtlTarget& target);

struct CtlOptions {
  CtlTarget target = {};
  std::string action = {};              // "status", "reset" and so on
  std::vector<std::string> words = {};  // what follows: names of tiers, numbers
  std::uint32_t wait_seconds = 30;      // of drain
  bool json = false;                    // the server's answer as it is
};

// Errors: what the server or the connection says, and what to do.
[[nodiscard]] Status run_ctl(const CtlOptions& options, std::istream& in, std::ostream& out);

// The answer to GET `path`, as text. Errors as run_ctl().
[[nodiscard]] Result<std::string> get_text(const CtlTarget& target, const std::string& path);

}  // namespace cairn::cli
