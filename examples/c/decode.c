/* One token at a time in C: a prompt, tokens that are tried and taken back, a state saved and loaded.
 *
 *   cc decode.c -lttr_c -lm && ./a.out state.safetensors
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ttr/ttr.h>

enum { heads = 2, dim = 4, most_inputs = 8 };

static void check(ttr_status status, const char* what) {
  if (status == TTR_OK) return;
  fprintf(stderr, "%s: %s\n", what, ttr_last_error());
  exit(1);
}

int main(int argc, char** argv) {
  const char* path = argc > 1 ? argv[1] : "state.safetensors";
  ttr_shape shape = {sizeof shape, 1, heads, heads, dim, dim};
  ttr_options options;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.rewind = 4; /* tokens that may be taken back */
  ttr_plan* plan;
  check(ttr_plan_create("gated-deltanet", &shape, &options, &plan), "plan");
  printf("ttr %s, ABI %d, %s on %s\n", ttr_version(), (int)ttr_abi_version(), ttr_plan_name(plan),
         ttr_plan_kernel(plan));

  ttr_footprint bytes = {.size = sizeof bytes};
  check(ttr_plan_footprint(plan, 1, TTR_STEP, &bytes), "footprint");
  void* state = malloc(bytes.state);
  void* work = malloc(bytes.workspace);
  check(ttr_state_reset(plan, state, bytes.state), "reset");

  /* The call is prepared once: names, shapes, types. Afterwards it takes pointers. */
  float numbers[most_inputs][heads * dim], answer[heads * dim];
  ttr_tensor inputs[most_inputs], output;
  const void* reads[most_inputs];
  const size_t count = ttr_plan_input_count(plan);
  memset(inputs, 0, sizeof inputs);
  memset(&output, 0, sizeof output);
  for (size_t i = 0; i < count; ++i) {
    ttr_info info = {sizeof info, NULL, NULL, NULL, 0, 0};
    check(ttr_plan_input(plan, i, &info), "input");
    inputs[i].size = sizeof inputs[i], inputs[i].name = info.name, inputs[i].type = TTR_F32;
    inputs[i].rank = (int32_t)ttr_plan_extents(plan, info.shape, 1, inputs[i].extent);
    reads[i] = numbers[i];
  }
  output.size = sizeof output, output.name = "o", output.type = TTR_F32;
  output.rank = (int32_t)ttr_plan_extents(plan, "B T H V", 1, output.extent);
  ttr_arguments arguments;
  memset(&arguments, 0, sizeof arguments);
  arguments.size = sizeof arguments;
  arguments.inputs = inputs, arguments.input_count = count;
  arguments.outputs = &output, arguments.output_count = 1;
  arguments.form = TTR_STEP;
  ttr_call* step;
  check(ttr_call_create(plan, &arguments, &step), "prepare");

  void* writes[] = {answer};
  float kept = 0;
  for (int token = 0; token < 13; ++token) {
    if (token == 10) { /* the last three were only tried */
      check(ttr_slot_rewind(plan, state, bytes.state, 0, 3), "rewind");
      check(ttr_state_save(plan, state, bytes.state, TTR_ALL_SEQUENCES, path), "save");
      check(ttr_state_reset(plan, state, bytes.state), "reset");
      check(ttr_state_load(plan, state, bytes.state, 0, TTR_ALL_SEQUENCES, path), "load");
      printf("%lld tokens seen\n", (long long)ttr_state_tokens_seen(plan, state, bytes.state, 0));
    }
    const int number = token < 10 ? token : token - 3; /* 7, 8, 9 come twice */
    for (size_t i = 0; i < count; ++i)
      for (int j = 0; j < heads * dim; ++j) {
        const double wave = sin(0.7 * number + 0.3 * j + (double)i);
        numbers[i][j] = (float)(strcmp(inputs[i].name, "g") == 0      ? -0.1 - 0.05 * wave
                                : strcmp(inputs[i].name, "beta") == 0 ? 0.5 + 0.3 * wave
                                                                      : 0.5 * wave);
      }
    check(ttr_call_run(step, reads, writes, state, bytes.state, work, bytes.workspace), "step");
    if (token == 9) kept = answer[0];
  }
  printf("answer %g, and %g after going back\n", kept, answer[0]);
  const int same = memcmp(&kept, &answer[0], sizeof kept) == 0;
  ttr_call_destroy(step);
  ttr_plan_destroy(plan);
  free(state);
  free(work);
  return same ? 0 : 1;
}
