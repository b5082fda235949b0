//! Connection IDs that encode their worker.

use std::fmt;
use std::hash::Hasher;
use std::sync::{Arc, Mutex, PoisonError};

use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid};
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use siphasher::sip::SipHasher13;

/// Length of our connection IDs: one byte for the worker, seven random.
pub(crate) const LENGTH: usize = 8;

/// Format of connection IDs, shared by all workers of a group, and by its successor if it has the
/// same key.
///
/// The first byte is the worker's number, masked by a keyed hash of the random rest. Without the
/// key, the IDs of one connection have nothing in common (RFC 9000, section 5.1).
#[derive(Clone)]
pub(crate) struct ConnectionIds {
    mask: SipHasher13,
    /// Masks of earlier secrets, the latest first: connections of an earlier process have their IDs.
    older: Arc<[SipHasher13]>,
    /// Number of workers, of which the IDs name one.
    workers: usize,
    /// Whether the endpoint also answers for IDs of other workers, whose packets it gets only if
    /// those workers have ended.
    answers_for_all: bool,
}

impl ConnectionIds {
    pub(crate) fn new(key: [u8; 16]) -> Self {
        Self {
            mask: SipHasher13::new_with_key(&key),
            older: Arc::default(),
            workers: usize::from(u8::MAX) + 1,
            answers_for_all: false,
        }
    }

    /// Adds the keys of earlier secrets, with which as many workers issued IDs.
    pub(super) fn with_older(self, keys: &[[u8; 16]], workers: usize) -> Self {
        Self { older: keys.iter().map(SipHasher13::new_with_key).collect(), workers, ..self }
    }

    /// Returns which secret an ID was issued under: 0 for the present one, 1 for the latest of the
    /// earlier ones. `None` if it names no worker under any.
    pub(super) fn secret_of(&self, id: &[u8]) -> Option<usize> {
        std::iter::once(&self.mask).chain(&*self.older).position(|mask| {
            named(mask, id).is_some_and(|worker| usize::from(worker) < self.workers)
        })
    }

    pub(super) fn answering_for_all(self) -> Self {
        Self { answers_for_all: true, ..self }
    }

    /// Whether the endpoint of `worker` may answer a packet with this ID although it has no such
    /// connection.
    fn answers(&self, worker: u8, id: &[u8]) -> bool {
        match self.secret_of(id) {
            Some(0) => self.answers_for_all || self.worker(id) == Some(worker),
            // Its worker was one of an earlier process.
            Some(_) => true,
            None => false,
        }
    }

    /// Returns a generator of IDs. `seed` is the source of the random bytes; by default the
    /// operating system.
    pub(crate) fn generator(&self, worker: u8, seed: Option<[u8; 32]>) -> Generator {
        let rng = seed.map_or_else(|| StdRng::from_rng(&mut rand::rng()), StdRng::from_seed);
        Generator { ids: self.clone(), worker, rng, reserved: ReservedId::default() }
    }

    /// Returns the worker that issued `id`; any number if it is not one of ours.
    fn worker(&self, id: &[u8]) -> Option<u8> {
        named(&self.mask, id)
    }
}

/// Returns the worker that an ID names under one mask; any number if it was issued under another.
fn named(mask: &SipHasher13, id: &[u8]) -> Option<u8> {
    let (first, rest) = id.first_chunk::<LENGTH>()?.split_first()?;
    Some(first ^ mask_byte(mask, rest))
}

fn mask_byte(mask: &SipHasher13, rest: &[u8]) -> u8 {
    let mut hasher = *mask;
    hasher.write(rest);
    hasher.finish() as u8
}

impl fmt::Debug for ConnectionIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionIds").finish_non_exhaustive()
    }
}

const LONG_HEADER: u8 = 0x80;
const LONG_TYPE: u8 = 0x30;
const VERSION_1: [u8; 4] = [0, 0, 0, 1];

/// Returns the worker that a datagram belongs to; `None` if any worker may process it.
///
/// Only Initial and 0-RTT packets have connection IDs chosen by the client (RFC 9000, section 7.2).
pub(crate) fn steer(ids: &ConnectionIds, datagram: &[u8]) -> Option<u8> {
    const HANDSHAKE: u8 = 0x20;

    let first = *datagram.first()?;
    if first & LONG_HEADER == 0 {
        return ids.worker(datagram.get(1..)?);
    }
    let is_handshake = first & LONG_TYPE == HANDSHAKE && datagram.get(1..5)? == VERSION_1;
    if is_handshake { named_by_long_header(ids, datagram) } else { None }
}

/// Whether a datagram begins with an Initial or a 0-RTT packet.
pub(crate) fn is_first_flight(datagram: &[u8]) -> bool {
    const INITIAL: u8 = 0x00;
    const ZERO_RTT: u8 = 0x10;

    let is_long =
        |first: &u8| first & LONG_HEADER != 0 && matches!(first & LONG_TYPE, INITIAL | ZERO_RTT);
    datagram.first().is_some_and(is_long) && datagram.get(1..5) == Some(&VERSION_1)
}

/// Returns the worker in the connection ID of a datagram with a long header. It is any number if
/// the client has chosen an ID of that length.
pub(crate) fn named_by_long_header(ids: &ConnectionIds, datagram: &[u8]) -> Option<u8> {
    if usize::from(*datagram.get(5)?) == LENGTH { ids.worker(datagram.get(6..)?) } else { None }
}

/// Whether the endpoint of `worker` may answer a short-header packet that belongs to no connection.
pub(super) fn is_answerable(ids: &ConnectionIds, worker: u8, datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| first & LONG_HEADER == 0)
        && datagram.get(1..).is_some_and(|id| ids.answers(worker, id))
}

/// An ID that was chosen before its connection was accepted.
#[derive(Clone, Default)]
pub(super) struct ReservedId(Option<Arc<Mutex<Option<ConnectionId>>>>);

impl ReservedId {
    /// Creates a place for IDs, to be shared with a generator.
    pub(super) fn new() -> Self {
        Self(Some(Arc::default()))
    }

    /// Lets the generator return this ID next.
    pub(super) fn set(&self, id: ConnectionId) {
        if let Some(place) = &self.0 {
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(id);
        }
    }

    /// Takes the ID back, if no connection has got it.
    pub(super) fn take(&self) -> Option<ConnectionId> {
        self.0.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

pub(crate) struct Generator {
    ids: ConnectionIds,
    worker: u8,
    rng: StdRng,
    reserved: ReservedId,
}

impl Generator {
    pub(super) fn with_reserved(self, reserved: ReservedId) -> Self {
        Self { reserved, ..self }
    }
}

impl ConnectionIdGenerator for Generator {
    fn generate_cid(&mut self) -> ConnectionId {
        if let Some(reserved) = self.reserved.take() {
            return reserved;
        }
        let mut id = [0; LENGTH];
        self.rng.fill_bytes(&mut id[1..]);
        id[0] = self.worker ^ mask_byte(&self.ids.mask, &id[1..]);
        ConnectionId::new(&id)
    }

    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        if self.ids.answers(self.worker, id) { Ok(()) } else { Err(InvalidCid) }
    }

    fn cid_len(&self) -> usize {
        LENGTH
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short_header(id: &ConnectionId) -> Vec<u8> {
        [&[0x40], &id[..], &[0; 20]].concat()
    }

    #[test]
    fn issued_id_names_its_worker() {
        let ids = ConnectionIds::new(rand::random());
        for worker in 0..=255 {
            let id = ids.generator(worker, None).generate_cid();
            assert_eq!(steer(&ids, &short_header(&id)), Some(worker));
            assert!(ids.generator(worker, None).validate(&id).is_ok());
            assert!(ids.generator(worker.wrapping_add(1), None).validate(&id).is_err());
        }
    }

    #[test]
    fn handshake_packet_is_steered_and_initial_is_not() {
        let ids = ConnectionIds::new(rand::random());
        let id = ids.generator(3, None).generate_cid();
        let long = |first: u8| [&[first, 0, 0, 0, 1, LENGTH as u8], &id[..], &[0; 20]].concat();
        assert_eq!(steer(&ids, &long(0xe0)), Some(3));
        assert_eq!(steer(&ids, &long(0xc0)), None);
        assert_eq!(steer(&ids, &long(0xd0)), None);
    }

    #[test]
    fn first_packet_names_a_worker_if_its_id_has_the_length_of_ours() {
        let ids = ConnectionIds::new(rand::random());
        let id = ids.generator(3, None).generate_cid();
        let long =
            |first: u8, id: &[u8]| [&[first, 0, 0, 0, 1, id.len() as u8], id, &[0; 20]].concat();
        for first in [0xc0, 0xd0] {
            assert!(is_first_flight(&long(first, &id)));
            assert_eq!(named_by_long_header(&ids, &long(first, &id)), Some(3));
        }
        assert_eq!(named_by_long_header(&ids, &long(0xc0, &[7; 20])), None);
        assert!(!is_first_flight(&long(0xe0, &id)));
        assert!(!is_first_flight(&short_header(&id)));
        for length in 0..6 {
            assert_eq!(is_first_flight(&long(0xc0, &id)[..length]), length == 5);
            assert_eq!(named_by_long_header(&ids, &long(0xc0, &id)[..length]), None);
        }
    }

    #[test]
    fn endpoint_answers_for_its_own_ids_or_for_all() {
        let ids = ConnectionIds::new(rand::random());
        let id = ids.generator(3, None).generate_cid();
        let answerable = |ids: &ConnectionIds, worker| {
            let answers = is_answerable(ids, worker, &short_header(&id));
            assert_eq!(ids.generator(worker, None).validate(&id).is_ok(), answers);
            answers
        };
        assert!(answerable(&ids, 3) && !answerable(&ids, 4));
        let ids = ids.clone().answering_for_all();
        assert!(answerable(&ids, 3) && answerable(&ids, 4));
    }

    #[test]
    fn ids_of_earlier_secrets_are_answered_by_any_worker_and_those_of_living_ones_by_their_own() {
        let keys: [[u8; 16]; 3] = rand::random();
        let ids = ConnectionIds::new(keys[0]).with_older(&keys[1..2], 2);
        let answers = |key: [u8; 16], worker| {
            let id = ConnectionIds::new(key).generator(1, None).generate_cid();
            is_answerable(&ids, worker, &short_header(&id))
        };
        let count = |key, worker| (0..500).filter(|_| answers(key, worker)).count();
        assert_eq!((count(keys[0], 0), count(keys[0], 1)), (0, 500));
        // One in 128 seems to be of a living connection.
        assert!(count(keys[1], 0) > 450 && count(keys[1], 1) > 450);
        assert!(count(keys[2], 0) < 50);
    }

    #[test]
    fn truncated_datagram_is_not_steered() {
        let ids = ConnectionIds::new(rand::random());
        let id = ids.generator(3, None).generate_cid();
        let whole = short_header(&id);
        for length in 0..=LENGTH {
            assert_eq!(steer(&ids, &whole[..length]), None);
        }
    }

    #[test]
    fn ids_of_one_worker_share_no_first_byte() {
        let ids = ConnectionIds::new(rand::random());
        let mut generator = ids.generator(0, None);
        let first_bytes: std::collections::HashSet<u8> =
            (0..512).map(|_| generator.generate_cid()[0]).collect();
        assert!(
            first_bytes.len() > 64,
            "only {} first bytes in 512 identifiers",
            first_bytes.len()
        );
    }
}
