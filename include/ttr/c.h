/* The library for C, and for every language that calls C: plans, calls, slots, saved states and prepared calls.
 *
 *   ttr_plan* plan;
 *   ttr_shape shape = {sizeof shape, 1, 4, 4, 64, 64};
 *   if (ttr_plan_create("gated-deltanet", &shape, NULL, &plan) != TTR_OK) puts(ttr_last_error());
 *
 * What the functions do is said in ttr/plan.h, ttr/prepared.h and ttr/saved_state.h, whose names they have; here is what C
 * needs besides. Structs begin with their size, so that later versions can add to their end: set it to sizeof. Everything
 * of a struct that is behind the size it says is taken as zero. Pointers to const char stay valid as long as their plan;
 * ttr_last_error() until the next failure in the same thread. A plan may be used by several threads at once, a ttr_call by
 * one. Functions never throw, print or abort; those of the hot path (step, forward, call) allocate nothing.
 *
 * The symbols of the shared library are listed in src/c_abi/symbols.txt; its SONAME has TTR_ABI_VERSION.
 */
#ifndef TTR_C_H
#define TTR_C_H

#include <stddef.h>
#include <stdint.h>

#include "ttr/export.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TTR_ABI_VERSION 1
#define TTR_MAX_RANK 6

typedef int32_t ttr_status;
enum {
  TTR_OK = 0,
  TTR_MISSING_INPUT,
  TTR_BAD_SHAPE,
  TTR_BAD_TYPE,
  TTR_SMALL_STATE,
  TTR_STATE_FULL,
  TTR_SMALL_WORKSPACE,
  TTR_OUT_OF_DOMAIN,
  TTR_NOT_SUPPORTED,
  TTR_OUT_OF_MEMORY,
  TTR_UNKNOWN_NAME,
  TTR_BAD_STATE,
  TTR_OVERLAP,
  TTR_MISALIGNED,
  TTR_SMALL_SAVED,
  TTR_BAD_SAVED,
  TTR_ERROR = 100, /* planning, preparing, files: ttr_last_error() has the sentence */
  TTR_BAD_ARGUMENT /* a null pointer, or a struct without its size */
};
enum { TTR_F32 = 0, TTR_F64, TTR_BF16, TTR_F16, TTR_I64, TTR_I8 };
enum { TTR_BEST = 0, TTR_STEP, TTR_RECURRENT, TTR_CHUNK, TTR_PARALLEL, TTR_SCAN };
enum { TTR_WRITE = 0, TTR_ADD };
enum { TTR_ALL_SEQUENCES = -1 };

typedef struct ttr_plan ttr_plan;
typedef struct ttr_call ttr_call;
typedef struct ttr_stream ttr_stream;
typedef struct ttr_backward_call ttr_backward_call;

typedef struct {
  size_t size;
  int32_t batch, heads, key_heads, key_dim, value_dim; /* 0: 1; key_heads: as heads */
} ttr_shape;

typedef void (*ttr_run_jobs)(void* self, int32_t jobs, void (*job)(void* data, int32_t i), void* data);

typedef struct {
  size_t size;
  int32_t type;         /* TTR_F32 or TTR_F64 */
  int32_t half_tensors; /* TTR_BF16 or TTR_F16: calls may have such tensors; 0: none */
  int32_t whole;        /* 1: every query sees all pairs of its call (not causal) */
  int32_t chunk;
  int32_t threads; /* 0: one, -1: all of the machine */
  int32_t rewind;
  int32_t has_scale;
  double scale;
  const char* settings; /* "ridge=1e-3,decay=0.9"; NULL: none */
  const char* kernel;
  const char* target;
  ttr_run_jobs run_jobs; /* threads of the caller */
  void* executor;
  int32_t state_type; /* TTR_BF16, TTR_F16 or TTR_I8: a state in fewer bytes; 0: that of the plan */
} ttr_options;

typedef struct {
  size_t size;
  const char* name;
  void* data; /* only read where it is an input */
  int32_t type, rank;
  int64_t extent[TTR_MAX_RANK], stride[TTR_MAX_RANK]; /* strides count elements; all zero: contiguous */
} ttr_tensor;

/* A call: arrays of named tensors, and the caller's memory. */
typedef struct {
  size_t size;
  const ttr_tensor* inputs;
  size_t input_count;
  const ttr_tensor* outputs;
  size_t output_count;
  void* state;
  size_t state_bytes;
  void* workspace;
  size_t workspace_bytes;
  int32_t form;
  const int64_t* cu_seqlens; /* packed sequences: batch + 1 numbers, or NULL */
  const int64_t* cu_seqlens_pairs;
  void*
      saved; /* forward leaves there what backward of the same call need not find again: ttr_footprint.saved; or NULL */
  size_t saved_bytes;
} ttr_arguments;

/* What backward has besides; `state` of the arguments is the initial one and only read, `outputs` are not used. */
typedef struct {
  size_t size;
  const ttr_tensor* d_outputs;
  size_t d_output_count;
  const ttr_tensor* d_inputs;
  size_t d_input_count;
  const void* d_final;
  size_t d_final_bytes;
  void* d_initial;
  size_t d_initial_bytes;
  int32_t gradients; /* TTR_WRITE or TTR_ADD */
} ttr_gradients;

typedef struct {
  size_t size;
  size_t state, workspace, backward;
  size_t saved; /* what a forward can leave for its backward; 0: nothing */
} ttr_footprint;

/* An input, an output or a part of the state. */
typedef struct {
  size_t size;
  const char *name, *shape, *meaning;
  int32_t differentiable, optional;
} ttr_info;

TTR_API const char* ttr_version(void);
TTR_API int32_t ttr_abi_version(void);
TTR_API int32_t ttr_saved_state_layout(void);
TTR_API const char* ttr_last_error(void);
TTR_API const char* ttr_status_text(ttr_status);

TTR_API size_t ttr_layer_count(void);
TTR_API const char* ttr_layer_name(size_t i); /* NULL behind the last */

TTR_API ttr_status ttr_plan_create(const char* layer_or_recipe, const ttr_shape*, const ttr_options*,
                                   ttr_plan** plan);
TTR_API void ttr_plan_destroy(ttr_plan*);
TTR_API const char* ttr_plan_name(const ttr_plan*);
TTR_API const char* ttr_plan_kernel(const ttr_plan*);
TTR_API double ttr_plan_scale(const ttr_plan*);
TTR_API size_t ttr_plan_input_count(const ttr_plan*);
TTR_API size_t ttr_plan_output_count(const ttr_plan*);
TTR_API size_t ttr_plan_state_count(const ttr_plan*);
TTR_API ttr_status ttr_plan_input(const ttr_plan*, size_t i, ttr_info*);
TTR_API ttr_status ttr_plan_output(const ttr_plan*, size_t i, ttr_info*);
TTR_API ttr_status ttr_plan_state(const ttr_plan*, size_t i, ttr_info*);
TTR_API int32_t ttr_plan_has_form(const ttr_plan*, int32_t form);
TTR_API int32_t ttr_plan_best_form(const ttr_plan*, int64_t time);
TTR_API ttr_status ttr_plan_footprint(const ttr_plan*, int64_t time, int32_t form, ttr_footprint*);
/* Extents of an info's shape; returns how many there are, at most TTR_MAX_RANK. */
TTR_API size_t ttr_plan_extents(const ttr_plan*, const char* shape, int64_t time, int64_t* extents);

TTR_API ttr_status ttr_step(const ttr_plan*, const ttr_arguments*);
TTR_API ttr_status ttr_forward(const ttr_plan*, const ttr_arguments*);
TTR_API ttr_status ttr_backward(const ttr_plan*, const ttr_arguments*, const ttr_gradients*);
/* What is wrong with the arguments of step and forward (gradients: of backward, or NULL), or lost in rounding by a forward
   that succeeds, as ttr_last_error(); 1: nothing. */
TTR_API int32_t ttr_diagnose(const ttr_plan*, const ttr_arguments*, const ttr_gradients*);

/* One pointer for each input and output of the plan, in its order; NULL for those that were left out. */
TTR_API ttr_status ttr_call_create(const ttr_plan*, const ttr_arguments*, ttr_call** call);
TTR_API void ttr_call_destroy(ttr_call*);
TTR_API ttr_status ttr_call_run(ttr_call*, const void* const* inputs, void* const* outputs, void* state,
                                size_t state_bytes, void* workspace, size_t workspace_bytes);

/* The same for backward: one pointer for each input (inputs, d_inputs) and output (d_outputs) of the plan, in its order. */
TTR_API ttr_status ttr_backward_create(const ttr_plan*, const ttr_arguments*, const ttr_gradients*,
                                       ttr_backward_call** call);
TTR_API void ttr_backward_destroy(ttr_backward_call*);
TTR_API ttr_status ttr_backward_run(ttr_backward_call*, const void* const* inputs, const void* state,
                                    size_t state_bytes, const void* const* d_outputs, const void* d_final,
                                    size_t d_final_bytes, void* const* d_inputs, void* d_initial,
                                    size_t d_initial_bytes, void* workspace, size_t workspace_bytes);

/* Both with room for what forward leaves to backward (ttr_arguments.saved). */
TTR_API ttr_status ttr_call_run_saving(ttr_call*, const void* const* inputs, void* const* outputs, void* state,
                                       size_t state_bytes, void* workspace, size_t workspace_bytes, void* saved,
                                       size_t saved_bytes);
TTR_API ttr_status ttr_backward_run_saved(ttr_backward_call*, const void* const* inputs, const void* state,
                                          size_t state_bytes, const void* const* d_outputs, const void* d_final,
                                          size_t d_final_bytes, void* const* d_inputs, void* d_initial,
                                          size_t d_initial_bytes, void* workspace, size_t workspace_bytes,
                                          const void* saved, size_t saved_bytes);

TTR_API ttr_status ttr_state_reset(const ttr_plan*, void* state, size_t bytes);
TTR_API ttr_status ttr_state_zero(const ttr_plan*, void* state, size_t bytes);
TTR_API ttr_status ttr_state_grow(const ttr_plan* to_plan, void* to, size_t to_bytes, const ttr_plan* from_plan,
                                  const void* from, size_t from_bytes);
/* A part of the state by name: data, type, extents and strides are filled in. */
TTR_API ttr_status ttr_state_tensor(const ttr_plan*, void* state, size_t bytes, const char* name, ttr_tensor*);
TTR_API int64_t ttr_state_capacity(const ttr_plan*, const void* state, size_t bytes);
TTR_API int64_t ttr_state_tokens_seen(const ttr_plan*, const void* state, size_t bytes, int32_t sequence);
TTR_API int64_t ttr_state_tokens_kept(const ttr_plan*, const void* state, size_t bytes, int32_t sequence);
TTR_API int64_t ttr_state_rewindable(const ttr_plan*, const void* state, size_t bytes, int32_t sequence);
TTR_API ttr_status ttr_slot_reset(const ttr_plan*, void* state, size_t bytes, int32_t sequence);
TTR_API ttr_status ttr_slot_copy(const ttr_plan* to_plan, void* to, size_t to_bytes, int32_t to_sequence,
                                 const ttr_plan* from_plan, const void* from, size_t from_bytes,
                                 int32_t from_sequence);
TTR_API ttr_status ttr_slot_swap(const ttr_plan*, void* state, size_t bytes, int32_t one, int32_t other);
TTR_API ttr_status ttr_slot_truncate(const ttr_plan*, void* state, size_t bytes, int32_t sequence, int64_t tokens);
TTR_API ttr_status ttr_slot_rewind(const ttr_plan*, void* state, size_t bytes, int32_t sequence, int64_t tokens);

/* `sequence`: one slot, or TTR_ALL_SEQUENCES. Loading puts the file's sequences at `to` and behind; `from`: one of the
 * file alone. */
TTR_API ttr_status ttr_state_save(const ttr_plan*, const void* state, size_t bytes, int32_t sequence,
                                  const char* path);
TTR_API ttr_status ttr_state_load(const ttr_plan*, void* state, size_t bytes, int32_t to, int32_t from,
                                  const char* path);
/* In memory: *size bytes go to `buffer`, if it has as many; *size is set in any case. */
TTR_API ttr_status ttr_state_pack(const ttr_plan*, const void* state, size_t bytes, int32_t sequence, void* buffer,
                                  size_t* size);
TTR_API ttr_status ttr_state_unpack(const ttr_plan*, void* state, size_t bytes, int32_t to, int32_t from,
                                    const void* packed, size_t size);

/* A plan with memory of its own (ttr/stream.h). One pointer for each input of the plan, in that order, NULL for those that
 * are left out: contiguous tensors [B, tokens, ...] of the plan's type, as is the answer. What is pushed is seen; what is
 * asked by query is answered and forgotten. The plan may be destroyed before its streams. */
TTR_API ttr_status ttr_stream_create(const ttr_plan*, ttr_stream** stream);
TTR_API void ttr_stream_destroy(ttr_stream*);
TTR_API ttr_status ttr_stream_push(ttr_stream*, const void* const* inputs, void* answer, int64_t tokens);
TTR_API ttr_status ttr_stream_query(ttr_stream*, const void* const* inputs, void* answer, int64_t tokens);
TTR_API ttr_status ttr_stream_clone(const ttr_stream*, ttr_stream** clone);
TTR_API ttr_status ttr_stream_save(const ttr_stream*, const char* path);
TTR_API ttr_status ttr_stream_load(ttr_stream*, const char* path);
TTR_API ttr_status ttr_stream_rewind(ttr_stream*, int64_t tokens);
TTR_API int64_t ttr_stream_tokens(const ttr_stream*, int32_t sequence); /* seen; -1 for NULL */

/* What other languages show to people, as JSON with the names of ttr/layer.h, ttr/plan.h, ttr/recipe.h and ttr/stream.h.
 * *size bytes, the final zero among them, go to `buffer` if it has as many; *size is set in any case. */
TTR_API ttr_status ttr_layer_describe(const char* name, char* buffer, size_t* size);
TTR_API ttr_status ttr_plan_describe(const ttr_plan*, char* buffer, size_t* size);
TTR_API ttr_status ttr_derive(const char* layer_or_recipe, int32_t latex, char* buffer, size_t* size);
/* What runs where a row is a token and nothing is learned beforehand. */
TTR_API ttr_status ttr_stream_describe(const char* layer_or_recipe, char* buffer, size_t* size);
/* The place that ttr_last_error() is about: "column 9 of the recipe", "layer nlsm"; "" if there is none. */
TTR_API const char* ttr_last_error_where(void);

#ifdef __cplusplus
}
#endif

#endif
