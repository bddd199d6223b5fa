//! Parses arbitrary texts as two profiles for `opcollect profile diff`, separated by a zero byte. Valid profiles are
//! summarised, compared and written; a single profile is compared with itself.

use profile::Profile;
use profile::compare::compare_profiles;
use profile::cycle;
use profile::summary::GroupBy;

fn read(text: &[u8]) -> Option<Profile> {
    let profile: Profile = serde_json::from_slice(text).ok()?;
    profile.check().ok().map(|()| profile)
}

pub fn run(bytes: &[u8]) {
    let split = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let Some(before) = read(&bytes[..split]) else { return };
    let after = bytes.get(split + 1..).and_then(read);
    let after = after.as_ref().unwrap_or(&before);
    for group_by in [GroupBy::Name, GroupBy::Call, GroupBy::Scope(2), GroupBy::InputShape] {
        let _ = compare_profiles(&before, after, group_by);
    }
    for cycle in cycle::list_cycles(&before) {
        cycle::cut_cycle(&before, cycle).check().expect("a part of a sound profile is sound");
    }
}
