/* What the shared libraries show: the functions and classes of these headers and nothing else. For C too.
 *
 *   TTR_API          of libttr (and, for the functions of ttr/c.h, of libttr_c)
 *   TTR_MODEL_API    of libttr_model
 *   TTR_LANGUAGE_API of libttr_language
 *
 * TTR_SHARED is defined by whoever uses or builds the shared libraries: the CMake targets and the pkg-config files say so.
 * Without it, in a static library, nothing has a mark: a shared library that ttr is linked into does not show its names. */
#ifndef TTR_EXPORT_H
#define TTR_EXPORT_H

#if !defined(TTR_SHARED)
#define TTR_API
#define TTR_MODEL_API
#define TTR_LANGUAGE_API
#elif defined(_WIN32)
#ifdef TTR_BUILDS_LIBRARY
#define TTR_API __declspec(dllexport)
#else
#define TTR_API __declspec(dllimport)
#endif
#ifdef TTR_BUILDS_MODEL
#define TTR_MODEL_API __declspec(dllexport)
#else
#define TTR_MODEL_API __declspec(dllimport)
#endif
#ifdef TTR_BUILDS_LANGUAGE
#define TTR_LANGUAGE_API __declspec(dllexport)
#else
#define TTR_LANGUAGE_API __declspec(dllimport)
#endif
#elif defined(__GNUC__)
#define TTR_API __attribute__((visibility("default")))
#define TTR_MODEL_API __attribute__((visibility("default")))
#define TTR_LANGUAGE_API __attribute__((visibility("default")))
#else
#define TTR_API
#define TTR_MODEL_API
#define TTR_LANGUAGE_API
#endif

/* Of a part of an exported class that only the library itself knows. */
#if defined(TTR_SHARED) && defined(__GNUC__) && !defined(_WIN32)
#define TTR_HIDDEN __attribute__((visibility("hidden")))
#else
#define TTR_HIDDEN
#endif

#endif
