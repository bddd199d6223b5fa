//! Recognises schedules that compute fewer products than counted.

use super::table::Record;

impl Record {
    /// Returns whether the schedule saves counted products, as Winograd's does; its rate may exceed the host's peak.
    pub fn saves_products(&self) -> bool {
        /// Winograd saves products, and sums by taps skip padding.
        const SAVING: [&str; 2] = [r#""algorithm":"winograd"#, r#""order":"kernel_first""#];
        let text = self.schedule.as_ref().map_or("", |schedule| schedule.as_text());
        SAVING.iter().any(|saving| text.contains(saving))
    }
}
