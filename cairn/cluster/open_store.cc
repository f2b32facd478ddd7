#include "cairn/cluster/open_store.h"

#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/cluster/redis_store.h"

namespace cairn {

Status check_store_url(const std::string& url) {
  if (!url.starts_with("redis://") && !url.starts_with("rediss://")) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("'", url.substr(0, url.find("://")),
                        "' is no store; expected redis://HOST:PORT or rediss://HOST:PORT"));
  }
  CAIRN_TRY_ASSIGN([[maybe_unused]] const RedisAddress address, RedisAddress::parse(url));
  return {};
}

Result<std::unique_ptr<BlockStore>> open_store(const StoreOptions& options, const Clock& clock) {
  CAIRN_TRY(check_store_url(options.url));
  CAIRN_TRY_ASSIGN(const RedisAddress address, RedisAddress::parse(options.url));
  CAIRN_TRY_ASSIGN(std::unique_ptr<RedisStore> store, RedisStore::make(clock, {.address = address,
                                                                               .user = options.user,
                                                                               .password = options.password,
                                                                               .ca_file = options.ca_file,
                                                                               .time_to_live = options.time_to_live,
                                                                               .timeout = options.timeout,
                                                                               .connections = options.connections,
                                                                               .seed = options.seed}));
  return std::unique_ptr<BlockStore>(std::move(store));
}

}  // namespace cairn
