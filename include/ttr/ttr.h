/* ttr: test-time regression. This is the only header a user needs: the functions of C, and in C++ the classes too. */
#ifndef TTR_TTR_H
#define TTR_TTR_H

#include "ttr/c.h"

#ifdef __cplusplus
#include "ttr/axes.h"
#include "ttr/export.h"
#include "ttr/half.h"
#include "ttr/layer.h"
#include "ttr/memory.h"
#include "ttr/origins.h"
#include "ttr/plan.h"
#include "ttr/prepared.h"
#include "ttr/recipe.h"
#include "ttr/safetensors.h"
#include "ttr/saved_state.h"
#include "ttr/status.h"
#include "ttr/stream.h"
#include "ttr/version.h"
#include "ttr/view.h"
#endif

#endif
