//! Values of the `priority` field and of PRIORITY_UPDATE frames (RFC 9218).

use pronghorn_h3::Priority;

pub(crate) fn run(data: &[u8]) {
    let priority = Priority::from_field(data);
    assert!(priority.urgency <= Priority::MAX_URGENCY);
    // What it means can be said, and means the same then.
    assert_eq!(Priority::from_field(priority.to_string().as_bytes()), priority);
    // Said once more it changes nothing, and what it leaves out is left alone.
    assert_eq!(priority.overridden_by(data), priority);
    let other = Priority { urgency: 6, incremental: !priority.incremental };
    let over = other.overridden_by(data);
    assert!(over.urgency == priority.urgency || over.urgency == other.urgency);
    assert_eq!(over.overridden_by(data), over);
}
