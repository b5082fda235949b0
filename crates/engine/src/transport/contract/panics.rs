//! Panics in a transport's own code, which no peer should be able to cause.

use std::time::Duration;

use super::Limits;
use super::pair::{Pair, content};
use super::subject::OnQuinn;
use crate::transport::{Closed, Dir, Transport};

#[test]
fn panic_ends_its_connection_and_leaves_the_others() {
    let mut pair = Pair::<OnQuinn>::new(&Limits::default());
    let (doomed, other) = (pair.connect(), pair.connect());
    let panics = pair.server.transport.contain(doomed.1, |_| -> () { panic!("as planned") });
    assert_eq!(panics, None);
    pair.run_for(Duration::from_millis(1));
    let told = Closed::Transport("internal error".to_owned());
    assert_eq!(pair.server.take_closed(doomed.1), Some(told));
    // The next packet is answered by a stateless reset.
    pair.client.transport.ping(doomed.0);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(pair.client.take_closed(doomed.0), Some(Closed::Reset));
    let stream = pair.client.transport.open(other.0, Dir::Bidi).unwrap();
    let sent = content(100_000);
    assert_eq!(pair.upload(other, stream, &sent), sent);
    // Nothing of the dropped connection is left behind: its slot serves the next one.
    let next = pair.connect();
    assert_eq!(next.1.index, doomed.1.index);
    // A second panic report finds nothing to end.
    pair.server.transport.contain(doomed.1, |_| -> () { panic!("as planned") });
    let stream = pair.client.transport.open(next.0, Dir::Bidi).unwrap();
    assert_eq!(pair.upload(next, stream, &sent), sent);
}
