//! Recognises schedules that compute fewer multiplications than counted.

use super::table::Record;

impl Record {
    /// Returns whether the schedule saves counted multiplications, as Winograd's does; its rate may exceed the peak.
    pub fn saves_products(&self) -> bool {
        /// Texts in such schedules: Winograd saves multiplications, and the order `kernel_first` skips padding.
        const SAVING: [&str; 2] = [r#""algorithm":"winograd"#, r#""order":"kernel_first""#];
        let text = self.schedule.as_ref().map_or("", |schedule| schedule.as_text());
        SAVING.iter().any(|saving| text.contains(saving))
    }
}
