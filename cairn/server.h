// Public headers of the component "server": the HTTP port of a manager, and the log.
#pragma once

// IWYU pragma: begin_exports
#include "cairn/manager.h"
#include "cairn/server/http_server.h"
#include "cairn/server/log.h"
// IWYU pragma: end_exports
