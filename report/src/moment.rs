//! Dates and times of day in UTC.

const DAY_S: i64 = 86_400;

/// Formats a number of days since 1970 as a date.
pub fn format_date(days: i64) -> String {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + 400 * era + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Formats a number of seconds since 1970 as a date and a time of day.
pub fn format_moment(seconds: i64) -> String {
    let minutes = seconds.rem_euclid(DAY_S) / 60;
    format!("{} {:02}:{:02} UTC", format_date(seconds.div_euclid(DAY_S)), minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::{format_date, format_moment};

    #[test]
    fn dates_follow_the_calendar() {
        let moments = [0, 951_782_400, 1_709_164_799].map(format_moment);
        assert_eq!(moments, ["1970-01-01 00:00 UTC", "2000-02-29 00:00 UTC", "2024-02-28 23:59 UTC"]);
        assert_eq!(format_date(-1), "1969-12-31");
    }
}
