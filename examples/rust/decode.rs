// One token at a time in Rust, with the declarations of ttr/c.h that it needs: no bindgen, no crate.
//
//   rustc decode.rs -L <folder of libttr_c.so> -l ttr_c
use std::ffi::{c_char, c_void, CStr, CString};
use std::ptr::{null, null_mut};

const MAX_RANK: usize = 6;
const STEP: i32 = 1;

#[repr(C)]
struct Shape {
    size: usize,
    batch: i32,
    heads: i32,
    key_heads: i32,
    key_dim: i32,
    value_dim: i32,
}

#[repr(C)]
struct Tensor {
    size: usize,
    name: *const c_char,
    data: *mut c_void,
    dtype: i32,
    rank: i32,
    extent: [i64; MAX_RANK],
    stride: [i64; MAX_RANK],
}

#[repr(C)]
struct Arguments {
    size: usize,
    inputs: *const Tensor,
    input_count: usize,
    outputs: *const Tensor,
    output_count: usize,
    state: *mut c_void,
    state_bytes: usize,
    workspace: *mut c_void,
    workspace_bytes: usize,
    form: i32,
    cu_seqlens: *const i64,
    cu_seqlens_pairs: *const i64,
}

#[repr(C)]
struct Footprint {
    size: usize,
    state: usize,
    workspace: usize,
    backward: usize,
}

#[repr(C)]
struct Plan {
    _private: [u8; 0],
}
#[repr(C)]
struct Call {
    _private: [u8; 0],
}

extern "C" {
    fn ttr_version() -> *const c_char;
    fn ttr_last_error() -> *const c_char;
    fn ttr_plan_create(text: *const c_char, shape: *const Shape, options: *const c_void, plan: *mut *mut Plan) -> i32;
    fn ttr_plan_destroy(plan: *mut Plan);
    fn ttr_plan_footprint(plan: *const Plan, time: i64, form: i32, to: *mut Footprint) -> i32;
    fn ttr_plan_extents(plan: *const Plan, shape: *const c_char, time: i64, to: *mut i64) -> usize;
    fn ttr_state_reset(plan: *const Plan, state: *mut c_void, bytes: usize) -> i32;
    fn ttr_state_tokens_seen(plan: *const Plan, state: *const c_void, bytes: usize, sequence: i32) -> i64;
    fn ttr_call_create(plan: *const Plan, arguments: *const Arguments, call: *mut *mut Call) -> i32;
    fn ttr_call_destroy(call: *mut Call);
    fn ttr_call_run(
        call: *mut Call,
        inputs: *const *const c_void,
        outputs: *const *mut c_void,
        state: *mut c_void,
        state_bytes: usize,
        workspace: *mut c_void,
        workspace_bytes: usize,
    ) -> i32;
}

fn check(status: i32, what: &str) {
    if status != 0 {
        let said = unsafe { CStr::from_ptr(ttr_last_error()) };
        panic!("{}: {}", what, said.to_string_lossy());
    }
}

// NLMS with mu = 1 learns each pair exactly: after (1, 0) -> 3 and (0, 2) -> 4 the memory is the matrix [3, 2].
fn main() {
    let text = CString::new("nlms:mu=1").unwrap();
    let shape = Shape { size: std::mem::size_of::<Shape>(), batch: 1, heads: 1, key_heads: 1, key_dim: 2, value_dim: 1 };
    let mut plan: *mut Plan = null_mut();
    let mut bytes = Footprint { size: std::mem::size_of::<Footprint>(), state: 0, workspace: 0, backward: 0 };
    unsafe {
        check(ttr_plan_create(text.as_ptr(), &shape, null(), &mut plan), "plan");
        check(ttr_plan_footprint(plan, 1, STEP, &mut bytes), "footprint");
    }
    let mut state = vec![0u64; bytes.state / 8 + 1];
    let mut work = vec![0u64; bytes.workspace / 8 + 1];
    let (state_bytes, work_bytes) = (state.len() * 8, work.len() * 8);
    let state = state.as_mut_ptr() as *mut c_void;
    let work = work.as_mut_ptr() as *mut c_void;

    let names: Vec<CString> = ["q", "k", "v", "o"].iter().map(|n| CString::new(*n).unwrap()).collect();
    let shapes: Vec<CString> =
        ["B T H K", "B T H K", "B T H V", "B T H V"].iter().map(|s| CString::new(*s).unwrap()).collect();
    let tensors: Vec<Tensor> = (0..4)
        .map(|i| {
            let mut extent = [0i64; MAX_RANK];
            let rank = unsafe { ttr_plan_extents(plan, shapes[i].as_ptr(), 1, extent.as_mut_ptr()) } as i32;
            Tensor {
                size: std::mem::size_of::<Tensor>(),
                name: names[i].as_ptr(),
                data: null_mut(),
                dtype: 0,
                rank,
                extent,
                stride: [0; MAX_RANK],
            }
        })
        .collect();
    let arguments = Arguments {
        size: std::mem::size_of::<Arguments>(),
        inputs: tensors.as_ptr(),
        input_count: 3,
        outputs: &tensors[3],
        output_count: 1,
        state: null_mut(),
        state_bytes: 0,
        workspace: null_mut(),
        workspace_bytes: 0,
        form: STEP,
        cu_seqlens: null(),
        cu_seqlens_pairs: null(),
    };
    let mut step: *mut Call = null_mut();
    let mut answers = Vec::new();
    unsafe {
        check(ttr_state_reset(plan, state, state_bytes), "reset");
        check(ttr_call_create(plan, &arguments, &mut step), "prepare");
        for (k, v, q) in [([1f32, 0.0], [3f32], [1f32, 1.0]), ([0.0, 2.0], [4.0], [1.0, 1.0]), ([1.0, 1.0], [5.0], [2.0, 1.0])] {
            let mut o = [0f32];
            let reads = [q.as_ptr() as *const c_void, k.as_ptr() as *const c_void, v.as_ptr() as *const c_void];
            let writes = [o.as_mut_ptr() as *mut c_void];
            check(ttr_call_run(step, reads.as_ptr(), writes.as_ptr(), state, state_bytes, work, work_bytes), "step");
            answers.push(o[0]);
        }
        println!(
            "ttr {}: {:?} after {} tokens",
            CStr::from_ptr(ttr_version()).to_string_lossy(),
            answers,
            ttr_state_tokens_seen(plan, state, state_bytes, 0)
        );
        ttr_call_destroy(step);
        ttr_plan_destroy(plan);
    }
    assert_eq!(answers, [3.0, 5.0, 8.0]);
}
