//! The memory budget: what connections and requests hold in all, and what happens when that is too
//! much.
//!
//! Parts of the engine that hold bytes for peers count them in the worker's [`WorkerMemory`], and a
//! worker adds its sum to the [`MemoryBudget`] of all workers at the end of a turn. The sum decides
//! the [`MemoryPressure`], which each worker reads once a turn. So without pressure, a request pays
//! for nothing but additions to a worker's own numbers.

mod budget;
mod charge;
mod pressure;
mod system;
mod worker_memory;

pub use budget::{MemoryBudget, MemoryHold, PressureChange};
pub(crate) use charge::Charge;
pub use pressure::MemoryPressure;
pub(crate) use worker_memory::WorkerMemory;
pub use worker_memory::memory_pressure;
