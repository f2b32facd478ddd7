// call_http(): sends one request to an HTTP server and waits for its response, for commands such as `cairn ctl`.
//
// Thread safety: any thread.
// Errors: kUnavailable if nothing listens; kExpired if the response does not come within `longest`; kCorrupt if it is not
// HTTP, or larger than 64 MiB. A response with an error status is a value.
#pragma once

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/server/http_message.h"

namespace cairn {

[[nodiscard]] Result<HttpResponse> call_http(const HttpAddress& address, const HttpRequest& request, Duration longest);

}  // namespace cairn
