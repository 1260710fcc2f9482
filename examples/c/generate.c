/* A published language model in C: a prompt, tokens one after another, a state saved and gone on with.
 *
 *   cc generate.c -lttr_language_c && ./a.out model.gguf 10
 *
 * The prompt is tokens 1, 2, 3: with a tokenizer it would be that of ttr_lm_encode.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ttr/language_c.h>

static void check(ttr_status status, const char* what) {
  if (status == TTR_OK) return;
  fprintf(stderr, "%s: %s\n", what, ttr_lm_last_error());
  exit(1);
}

static int32_t likeliest(const float* logits, int32_t count) {
  int32_t best = 0;
  for (int32_t i = 1; i < count; ++i)
    if (logits[i] > logits[best]) best = i;
  return best;
}

/* What two texts in slots have made so far. */
struct made {
  int32_t vocabulary, *tokens;
  int most, count[2];
};

static int32_t next_of(void* user, int32_t slot, const float* logits) {
  struct made* made = user;
  const int32_t next = likeliest(logits, made->vocabulary);
  made->tokens[slot * made->most + made->count[slot]++] = next;
  return made->count[slot] < made->most ? next : -1;
}

/* Texts that come and go: one joins when the other has begun. Both get what a text gets alone. */
static int in_slots(ttr_lm* model, const int32_t* prompt, size_t count, const int32_t* expected, int tokens) {
  ttr_lm_slots* slots;
  int32_t first, second, none;
  struct made made = {ttr_lm_vocabulary(model), malloc(2 * (size_t)tokens * sizeof(int32_t)), tokens, {0, 0}};
  check(ttr_lm_slots_create(model, 2, &slots), "slots");
  check(ttr_lm_slots_join(slots, prompt, count, NULL, &first), "join");
  check(ttr_lm_slots_round(slots, next_of, &made), "round");
  check(ttr_lm_slots_join(slots, prompt, count, NULL, &second), "join");
  check(ttr_lm_slots_join(slots, prompt, count, NULL, &none), "join");
  int good = none == -1 || ttr_lm_slots_taken(slots) < 2;
  while (ttr_lm_slots_taken(slots) > 0) check(ttr_lm_slots_round(slots, next_of, &made), "round");
  for (int s = 0; s < 2; ++s) good = good && made.count[s] == tokens;
  for (int i = 0; i < 2 * tokens && good; ++i) good = made.tokens[i] == expected[i % tokens];
  good = good && ttr_lm_slots_leave(slots, first) != TTR_OK; /* it has left */
  ttr_lm_slots_destroy(slots);
  free(made.tokens);
  return good;
}

int main(int argc, char** argv) {
  const int32_t prompt[] = {1, 2, 3};
  const int tokens = argc > 2 ? atoi(argv[2]) : 10;
  ttr_lm_options options;
  ttr_lm* model;
  ttr_lm_sequence *text, *other;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.threads = -1;
  options.rewind = 2;
  if (argc < 2) return fprintf(stderr, "usage: generate MODEL [TOKENS [STATE]]\n"), 2;
  check(ttr_lm_load(argv[1], &options, &model), "load");
  const int32_t vocabulary = ttr_lm_vocabulary(model);
  int32_t* said = malloc((size_t)tokens * sizeof *said);
  float* logits = malloc(2 * (size_t)vocabulary * sizeof *logits);
  check(ttr_lm_sequence_create(model, &text), "sequence");
  check(ttr_lm_prefill(model, text, prompt, 3, 1, logits), "prefill");

  /* A token that is tried and taken back changes nothing. */
  check(ttr_lm_sequence_clone(text, &other), "clone");
  const int32_t wrong = 0;
  check(ttr_lm_step(model, &other, &wrong, 1, logits + vocabulary), "step");
  check(ttr_lm_sequence_rewind(other, 1), "rewind");

  for (int i = 0; i < tokens; ++i) {
    const int32_t next = likeliest(logits, vocabulary), both[] = {next, next};
    ttr_lm_sequence* sequences[] = {text, other};
    printf("%d ", (int)next);
    said[i] = next;
    check(ttr_lm_step(model, sequences, both, 2, logits), "step");
    if (memcmp(logits, logits + vocabulary, (size_t)vocabulary * sizeof *logits) != 0)
      return fprintf(stderr, "two texts with the same tokens have other logits\n"), 1;
  }
  printf("\n");
  if (!in_slots(model, prompt, 3, said, tokens)) return fprintf(stderr, "slots have other tokens\n"), 1;
  if (argc > 3) check(ttr_lm_sequence_save(text, argv[3]), "save");
  if (argc > 3) check(ttr_lm_sequence_load(other, argv[3]), "load the state");
  if (ttr_lm_sequence_tokens(other) != 3 + tokens) return fprintf(stderr, "tokens are lost\n"), 1;
  if (ttr_lm_load("/nothing", NULL, &model) == TTR_OK || !strstr(ttr_lm_last_error(), "nothing")) return 1;
  ttr_lm_sequence_destroy(text);
  ttr_lm_sequence_destroy(other);
  free(logits);
  free(said);
  return 0;
}
