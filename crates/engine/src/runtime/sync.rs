//! The primitives of [`inbox`](super::inbox) and [`wakeup`](super::wakeup). `model` replaces them
//! with others of the same names.

pub(super) use std::sync::atomic::{AtomicBool, Ordering};
pub(super) use std::sync::{Mutex, MutexGuard};
pub(super) use std::thread_local as each_thread;

pub(super) use mio::Waker;
