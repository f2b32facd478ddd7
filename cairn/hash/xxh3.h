// XXH3 of xxHash, compiled into the functions that call it. Internal; hash_bytes.h is the function for other folders.
#pragma once

#define XXH_STATIC_LINKING_ONLY
#define XXH_INLINE_ALL
#include <xxhash.h>
