/* Published language models for C, and for every language that calls C: what ttr/language.h has, in libttr_language_c.
 *
 *   ttr_lm* model;
 *   ttr_lm_sequence* text;
 *   if (ttr_lm_load("model.gguf", NULL, &model) != TTR_OK) puts(ttr_lm_last_error());
 *   ttr_lm_sequence_create(model, &text);
 *   ttr_lm_prefill(model, text, tokens, count, 0, logits);
 *
 * The rules are those of ttr/c.h, whose statuses these functions return: structs begin with their size, functions never throw,
 * print or abort, ttr_lm_last_error() has the sentence of the last failure in the same thread. A model is called by one thread
 * at a time; destroy its sequences before it. Logits are floats, [vocabulary] for each token.
 *
 * The symbols are listed in language/c_abi/symbols.txt; the SONAME has TTR_LM_ABI_VERSION.
 */
#ifndef TTR_LANGUAGE_C_H
#define TTR_LANGUAGE_C_H

#include "ttr/c.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TTR_LM_ABI_VERSION 1

typedef struct ttr_lm ttr_lm;
typedef struct ttr_lm_sequence ttr_lm_sequence;
typedef struct ttr_lm_slots ttr_lm_slots;

enum { TTR_LM_EXACT = 0, TTR_LM_ROUNDED = 1 }; /* activations: see ttr/language.h */

typedef struct {
  size_t size;
  int32_t threads;       /* 0: one, -1: all of the machine */
  int32_t context;       /* longest sequence, where a layer keeps its tokens; 0: 4096 */
  int32_t piece;         /* tokens of a prompt that go through the layers together; 0: the library's own */
  int32_t rewind;        /* newest tokens of a sequence that can be taken back */
  const char* tokenizer; /* a file; NULL: what lies beside the weights or in them */
  const char* settings; /* "name=value", separated by line ends; they go before those of the checkpoint. NULL: none */
  int32_t activations;  /* TTR_LM_EXACT, or TTR_LM_ROUNDED: to bf16 or eight bits, as the weights are */
} ttr_lm_options;

TTR_API int32_t ttr_lm_abi_version(void);
TTR_API const char* ttr_lm_last_error(void);

TTR_API ttr_status ttr_lm_load(const char* path, const ttr_lm_options*, ttr_lm** model);
TTR_API void ttr_lm_destroy(ttr_lm*);
TTR_API int32_t ttr_lm_vocabulary(const ttr_lm*);
/* What it is as JSON: path, architecture, layers, width, vocabulary, parameters, bytes of weights, state and workspace,
 * tokenizer, tokens that end a text. `*size` is the room in `to`, and becomes what is needed, with the final zero; TTR_BAD_ARGUMENT
 * if the room is less. */
TTR_API ttr_status ttr_lm_describe(const ttr_lm*, char* to, size_t* size);

/* Text to tokens: `*count` is the room, and becomes how many there are; TTR_BAD_ARGUMENT if the room is less. `special`: 1 with
 * the tokens that the model wants before a text, and those that a text names; TTR_LM_NAMED with the latter alone, for a text that
 * goes on; 0 without either. */
enum { TTR_LM_NAMED = 2 };
TTR_API ttr_status ttr_lm_encode(const ttr_lm*, const char* text, size_t bytes, int32_t special, int32_t* tokens,
                                 size_t* count);
/* The bytes of a token, without a final zero; `*bytes` as above. */
TTR_API ttr_status ttr_lm_decode(const ttr_lm*, int32_t token, char* to, size_t* bytes);

TTR_API ttr_status ttr_lm_sequence_create(const ttr_lm*, ttr_lm_sequence**);
TTR_API ttr_status ttr_lm_sequence_clone(const ttr_lm_sequence*, ttr_lm_sequence**);
TTR_API void ttr_lm_sequence_destroy(ttr_lm_sequence*);
TTR_API ttr_status ttr_lm_sequence_reset(ttr_lm_sequence*);
TTR_API int64_t ttr_lm_sequence_tokens(const ttr_lm_sequence*);
TTR_API int64_t ttr_lm_sequence_rewindable(const ttr_lm_sequence*);
TTR_API ttr_status ttr_lm_sequence_rewind(ttr_lm_sequence*, int64_t tokens);
TTR_API ttr_status ttr_lm_sequence_save(const ttr_lm_sequence*, const char* path);
TTR_API ttr_status ttr_lm_sequence_load(ttr_lm_sequence*, const char* path);

/* The tokens of one sequence. `fixed`: token by token, with the same bits however a text is cut into calls. `logits` has room for
 * those after the last token, or is NULL; ttr_lm_logits writes those after every token, [count, vocabulary]. */
TTR_API ttr_status ttr_lm_prefill(ttr_lm*, ttr_lm_sequence*, const int32_t* tokens, size_t count, int32_t fixed,
                                  float* logits);
TTR_API ttr_status ttr_lm_logits(ttr_lm*, ttr_lm_sequence*, const int32_t* tokens, size_t count, int32_t fixed,
                                 float* logits);
/* One token of each of several sequences, which are not twice the same; logits [count, vocabulary]. */
TTR_API ttr_status ttr_lm_step(ttr_lm*, ttr_lm_sequence* const* sequences, const int32_t* tokens, size_t count,
                               float* logits);

/* Texts that come and go (Slots of ttr/language.h): a round decodes one token of every text that has its prompt behind it, and
 * reads one piece of the prompt that waits longest. What a text gets does not depend on its company. Destroy them before the model,
 * which makes no other calls during a round. */
TTR_API ttr_status ttr_lm_slots_create(ttr_lm*, int32_t most, ttr_lm_slots**);
TTR_API void ttr_lm_slots_destroy(ttr_lm_slots*);
/* A text that begins with these tokens, and goes on from a copy of `from` unless that is NULL; `*slot` is -1 if all are taken. */
TTR_API ttr_status ttr_lm_slots_join(ttr_lm_slots*, const int32_t* tokens, size_t count, const ttr_lm_sequence* from,
                                     int32_t* slot);
TTR_API ttr_status ttr_lm_slots_leave(ttr_lm_slots*, int32_t slot);
TTR_API int32_t ttr_lm_slots_taken(const ttr_lm_slots*);
/* A round asks for the next token of each text, from its logits [vocabulary]; -1: it leaves its slot. `next` may join and leave, and
 * must not throw. If a call of the model fails, the texts in it have left. */
typedef int32_t (*ttr_lm_next)(void* user, int32_t slot, const float* logits);
TTR_API ttr_status ttr_lm_slots_round(ttr_lm_slots*, ttr_lm_next next, void* user);

#ifdef __cplusplus
}
#endif

#endif
