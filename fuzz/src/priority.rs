//! Values of the `priority` field and of PRIORITY_UPDATE frames (RFC 9218).

use pronghorn_h3::Priority;

pub(crate) fn run(data: &[u8]) {
    let priority = Priority::from_field(data);
    assert!(priority.urgency <= Priority::MAX_URGENCY);
    // Serializing a priority and parsing it again must not change it.
    assert_eq!(Priority::from_field(priority.to_string().as_bytes()), priority);
    // Applying the same value again must not change it, and missing parameters must be kept.
    assert_eq!(priority.overridden_by(data), priority);
    let other = Priority { urgency: 6, incremental: !priority.incremental };
    let over = other.overridden_by(data);
    assert!(over.urgency == priority.urgency || over.urgency == other.urgency);
    assert_eq!(over.overridden_by(data), over);
}
