// Macros for clang's thread-safety analysis; nothing with other compilers. Every guarded member carries
// CAIRN_GUARDED_BY, every method that wants the lock held carries CAIRN_REQUIRES.
#pragma once

#if defined(__clang__)
#define CAIRN_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define CAIRN_THREAD_ATTRIBUTE(x)
#endif

#define CAIRN_CAPABILITY(name) CAIRN_THREAD_ATTRIBUTE(capability(name))
#define CAIRN_SCOPED_CAPABILITY CAIRN_THREAD_ATTRIBUTE(scoped_lockable)
#define CAIRN_GUARDED_BY(mutex) CAIRN_THREAD_ATTRIBUTE(guarded_by(mutex))
#define CAIRN_PT_GUARDED_BY(mutex) CAIRN_THREAD_ATTRIBUTE(pt_guarded_by(mutex))
#define CAIRN_REQUIRES(...) CAIRN_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define CAIRN_EXCLUDES(...) CAIRN_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define CAIRN_ACQUIRE(...) CAIRN_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define CAIRN_TRY_ACQUIRE(...) CAIRN_THREAD_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
#define CAIRN_RELEASE(...) CAIRN_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
