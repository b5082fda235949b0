use std::io;

use super::recorder::{CHUNK_RECORDS, CHUNKS, Record};
use super::writer::{HEADER, pair};
use super::*;
use crate::way::Way;

/// These times do not come from the clock; only their order matters.
const LIVE_SINCE_NS: u64 = 7_000_000_000;

fn udp(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 20];
    packet[0] = 0x45;
    packet[9] = 17;
    packet.extend_from_slice(&source.to_be_bytes());
    packet.extend_from_slice(&destination.to_be_bytes());
    packet.extend_from_slice(&[0; 4]);
    packet.extend_from_slice(payload);
    packet
}

fn written(record: impl FnOnce(&mut Recorder)) -> String {
    let (mut recorder, mut rows) = pair();
    recorder.go_live(LIVE_SINCE_NS);
    record(&mut recorder);
    assert_eq!(recorder.finish(), 0);
    let mut text = Vec::new();
    rows.write_all(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

#[test]
fn rows_are_in_order_of_arrival_for_any_order_of_ends() {
    let text = written(|log| {
        let first = log.arrived(&udp(40000, 443, &[0x40; 10]), Way::Up, 1, 0);
        let second = log.arrived(&udp(443, 40000, &[0x40; 20]), Way::Down, 2, 1500);
        let third = log.arrived(&udp(40000, 443, &[]), Way::Up, 3, 48);
        let _held = log.arrived(&[0x20; 40], Way::Up, 4, 0);
        log.ended(third, Fate::Lost, 3);
        log.ended(second, Fate::Delivered, 90);
        log.ended(first, Fate::WriteFailed, 95);
    });
    let rows: Vec<&str> = text.strip_prefix(HEADER).unwrap().lines().collect();
    assert_eq!(
        rows,
        [
            "7000000001,,up,udp,40000,443,38,10,write_failed,0,short,,",
            "7000000002,7000000090,down,udp,40000,443,48,20,delivered,1500,short,,",
            "7000000003,,up,udp,40000,443,28,0,lost,48,,,",
            "7000000004,,up,,,,40,,held,0,,,",
        ]
    );
}

#[test]
fn segment_has_its_numbers_in_the_last_columns() {
    let mut packet = udp(40000, 443, &[]);
    packet[9] = 6;
    packet[24..28].copy_from_slice(&0xffff_fffeu32.to_be_bytes());
    packet.extend_from_slice(&[0, 0, 0, 9, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
    let text = written(|log| {
        let row = log.arrived(&packet, Way::Up, 0, 0);
        log.ended(row, Fate::Delivered, 5);
    });
    assert_eq!(
        text.lines().nth(1),
        Some("7000000000,7000000005,up,tcp,40000,443,40,0,delivered,0,A,4294967294,9")
    );
}

#[test]
fn many_chunks_lose_no_rows_while_packets_are_in_flight() {
    let (mut recorder, mut rows) = pair();
    let writer = std::thread::spawn(move || {
        let mut text = Vec::new();
        rows.write_all(&mut text).map(|()| text)
    });
    // Some packets end at once, some only 20,000 packets later, in another order.
    let mut late = Vec::new();
    for number in 0..200_000u64 {
        let row = recorder.arrived(&udp(1, 2, &[0x40]), Way::Up, number, number);
        if number % 3 == 0 {
            late.push(row);
        } else {
            recorder.ended(row, Fate::Lost, number);
        }
        if number % 20_000 == 19_999 {
            late.drain(..).rev().for_each(|row| recorder.ended(row, Fate::Delivered, number));
        }
    }
    let unlogged = recorder.finish();
    let text = String::from_utf8(writer.join().unwrap().unwrap()).unwrap();
    assert_eq!(unlogged, 0, "the rows fit into the memory bound");
    for (number, line) in text.lines().skip(1).enumerate() {
        let fields: Vec<&str> = line.split(',').collect();
        assert_eq!(
            (fields[0], fields[9]),
            (number.to_string().as_str(), number.to_string().as_str())
        );
        assert_eq!(fields[8], if number % 3 == 0 { "delivered" } else { "lost" });
    }
    assert_eq!(text.lines().count(), 200_001);
}

#[test]
fn rows_beyond_the_memory_bound_are_counted_without_blocking() {
    const BEYOND: u64 = 10;
    let (mut recorder, mut rows) = pair();
    // No writer is running yet.
    let packet = udp(1, 2, &[]);
    let logged: Vec<Row> = (0..MAX_ROWS_IN_MEMORY + BEYOND)
        .map(|number| recorder.arrived(&packet, Way::Up, number, 0))
        .collect();
    assert_eq!(logged.iter().filter(|row| row.is_none()).count() as u64, BEYOND);
    for row in logged {
        recorder.ended(row, Fate::Delivered, 9);
    }
    assert_eq!(recorder.finish(), BEYOND);
    let mut text = Vec::new();
    rows.write_all(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert_eq!(text.lines().count() as u64, 1 + MAX_ROWS_IN_MEMORY);
    assert!(!text.contains("held"), "each row has its recorded fate");
}

#[test]
fn full_disk_is_reported_at_the_end_without_blocking() {
    struct FullDisk;
    impl io::Write for FullDisk {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (mut recorder, mut rows) = pair();
    for number in 0..100_000 {
        let row = recorder.arrived(&udp(1, 2, &[]), Way::Up, number, 0);
        recorder.ended(row, Fate::Lost, number);
    }
    assert_eq!(recorder.finish(), 0);
    assert_eq!(rows.write_all(&mut FullDisk).unwrap_err().kind(), io::ErrorKind::StorageFull);
}

#[test]
fn memory_of_the_log_is_within_the_documented_bound() {
    assert!(CHUNKS * CHUNK_RECORDS * size_of::<Record>() <= 40_000_000, "{}", size_of::<Record>());
}
