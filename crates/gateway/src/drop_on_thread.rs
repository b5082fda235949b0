//! Values that are slow to free.

use std::ops::Deref;
use std::thread;

/// A value with so many parts that freeing them takes milliseconds. A separate thread frees it: its
/// last owner may be a worker, which would block all its connections.
pub(crate) struct DropOnThread<T: Send + 'static>(Option<Box<T>>);

impl<T: Send + 'static> DropOnThread<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Some(Box::new(value)))
    }
}

impl<T: Send + 'static> Deref for DropOnThread<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("invariant: only dropping takes it")
    }
}

impl<T: Send + 'static> Drop for DropOnThread<T> {
    fn drop(&mut self) {
        let value = self.0.take();
        // If no thread can be spawned, the closure and the value are dropped here.
        let _ = thread::Builder::new().name("free".to_owned()).spawn(move || drop(value));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    struct Dropped(mpsc::Sender<thread::ThreadId>);

    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.send(thread::current().id()).expect("a test that listens");
        }
    }

    #[test]
    fn value_is_freed_by_another_thread() {
        let (sender, receiver) = mpsc::channel();
        drop(DropOnThread::new(Dropped(sender)));
        assert_ne!(receiver.recv().expect("it is freed"), thread::current().id());
    }
}
