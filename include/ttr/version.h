// The version of the library; CMake reads it from here.
#pragma once

#define TTR_VERSION_MAJOR 0
#define TTR_VERSION_MINOR 1
#define TTR_VERSION_PATCH 0
#define TTR_VERSION "0.1.0"
