//! Values that take long to free.

use std::ops::Deref;
use std::thread;

/// A value with so many parts that to free them takes milliseconds. A thread of its own does that: the owner that drops it last may be a
/// worker, all connections of which would wait.
pub(crate) struct FreedAside<T: Send + 'static>(Option<Box<T>>);

impl<T: Send + 'static> FreedAside<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Some(Box::new(value)))
    }
}

impl<T: Send + 'static> Deref for FreedAside<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("invariant: only dropping takes it")
    }
}

impl<T: Send + 'static> Drop for FreedAside<T> {
    fn drop(&mut self) {
        let value = self.0.take();
        // Without a thread the closure is dropped here, and the value with it.
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
        drop(FreedAside::new(Dropped(sender)));
        assert_ne!(receiver.recv().expect("it is freed"), thread::current().id());
    }
}
