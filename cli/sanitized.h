// TTR_SANITIZED: the address or thread sanitizer is in this build, which replaces malloc and makes system calls of its own.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TTR_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TTR_SANITIZED 1
#endif
#endif
