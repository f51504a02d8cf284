//! Inputs that fuzzing has found, each with what went wrong.

use crate::fuzz;

#[test]
fn the_end_of_a_holder_that_ends_at_another_time_is_no_endless_work() {
    let entry = b"\x30\0\0\0\x14\0\0\0\0\0\x3d\0\x14\0\0\x02\0\0\0\0\0\xca\x3b\0\0\0\0\x9a\
        \x01\x08\x0c\x08\0\0\x88\x2f\x08\x28\0\0\0\x01\x0a\x88\x27\x0c\0\0";
    fuzz::replay(entry);
}

#[test]
fn a_lost_range_that_ends_before_it_begins_is_damage() {
    let records = b"\x0c\0\x07\x02\x10\0\x02\x03\0\0\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\
        \x01\x01\x01\x01\x01\x01\x02\x19\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\
        \xff\xff\xff\x02\x03\xff\xff\xff\xff\x01\0\x02";
    fuzz::store(records);
}
