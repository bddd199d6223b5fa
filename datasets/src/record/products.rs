//! Schedules that compute less than is counted.

use super::table::Record;

impl Record {
    /// Whether its schedule saves some of the products that are counted, as Winograd's do: then its rate of operations says
    /// nothing of what a host can do, and may be above any peak.
    pub fn saves_products(&self) -> bool {
        const SAVING: &str = r#""algorithm":"winograd"#;
        self.schedule.as_ref().is_some_and(|schedule| schedule.text().contains(SAVING))
    }
}
