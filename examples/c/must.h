/* Error handling of both examples: print the error and exit. */
#ifndef EXAMPLES_C_MUST_H_
#define EXAMPLES_C_MUST_H_

#include <cairn/cairn_c.h>
#include <stdio.h>
#include <stdlib.h>

static cairn_error failure = CAIRN_INIT(cairn_error);

static void must(int32_t code, const char* what) {
  if (code != CAIRN_OK) {
    fprintf(stderr, "%s: %s: %s\n", what, cairn_code_name(code), failure.message);
    exit(1);
  }
}

static void check(int holds, const char* what) {
  if (!holds) {
    fprintf(stderr, "not so: %s\n", what);
    exit(1);
  }
}

#endif /* EXAMPLES_C_MUST_H_ */
