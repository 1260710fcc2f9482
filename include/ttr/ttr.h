// ttr: test-time regression. This is the only header a user needs.
#pragma once

#include "ttr/axes.h"
#include "ttr/half.h"
#include "ttr/layer.h"
#include "ttr/plan.h"
#include "ttr/recipe.h"
#include "ttr/status.h"
#include "ttr/stream.h"
#include "ttr/version.h"
#include "ttr/view.h"
