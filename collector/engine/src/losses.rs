//! Groups attempts without a time by their reasons.

use datasets::{Outcome, Record};
use serde::Serialize;

/// Number of reasons that are shown; the others are only counted.
const SHOWN: usize = 8;
const REASON_CHARACTERS: usize = 160;

/// Attempts that failed for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// Outcome of the attempts.
    pub outcome: &'static str,
    /// First line of the reason, with numbers replaced by `…`.
    pub reason: String,
    /// Number of attempts.
    pub count: usize,
    /// Operator of the first such attempt.
    pub example: String,
}

/// Groups the records without a time by reason, the most frequent reason first.
pub fn group_losses(records: &[Record]) -> Vec<Loss> {
    let mut losses: Vec<Loss> = Vec::new();
    for record in records.iter().filter(|record| record.outcome.is_loss()) {
        let reason = shorten_reason(record.reason.as_deref().unwrap_or_default());
        match losses.iter_mut().find(|loss| loss.outcome == record.outcome.name() && loss.reason == reason) {
            Some(loss) => loss.count += 1,
            None => {
                let (outcome, example) = (record.outcome.name(), record.op_text.clone());
                losses.push(Loss { outcome, reason, count: 1, example });
            }
        }
    }
    losses.sort_by_key(|loss| std::cmp::Reverse(loss.count));
    losses
}

/// Returns the first line of a reason. Numbers become `…`, so that reasons of different attempts match.
fn shorten_reason(reason: &str) -> String {
    let line = reason.lines().next().unwrap_or_default();
    let mut text = String::new();
    let mut is_number = false;
    for (place, sign) in line.chars().enumerate().take(REASON_CHARACTERS) {
        let continues = is_number && matches!(sign, '.' | '+' | '-' | 'e');
        let begins = sign.is_ascii_digit() && (is_number || !is_inside_word(line, place));
        if begins && !is_number {
            text.push('…');
        }
        is_number = begins || (sign.is_ascii_digit() && is_number) || continues;
        if !is_number {
            text.push(sign);
        }
    }
    text.trim().to_owned()
}

/// Returns whether the preceding character belongs to a word, so that `conv2d` keeps its number.
fn is_inside_word(line: &str, place: usize) -> bool {
    let before = place.checked_sub(1).and_then(|before| line.chars().nth(before));
    before.is_some_and(|before| before.is_alphanumeric() || before == '_')
}

/// Formats the losses as text, which is empty if there are none.
pub fn describe_losses(losses: &[Loss], retry_faults: i64) -> String {
    let mut text = String::new();
    for Loss { outcome, reason, count, example } in losses.iter().take(SHOWN) {
        text.push_str(&format!("{count} {outcome}: {reason} (such as {example})\n"));
    }
    let rest: usize = losses.iter().skip(SHOWN).map(|loss| loss.count).sum();
    if rest > 0 {
        text.push_str(&format!("{rest} for other reasons; see the column `reason`\n"));
    }
    let is_fault = |loss: &&Loss| [Outcome::Crashed.name(), Outcome::TimedOut.name()].contains(&loss.outcome);
    if retry_faults > 0 && losses.iter().any(|loss| is_fault(&loss)) {
        text.push_str(&format!("the same command retries crashed and timed-out attempts, {retry_faults} times\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn lost(outcome: Outcome, reason: &str, text: &str) -> Record {
        Record { outcome, reason: Some(reason.to_owned()), op_text: text.to_owned(), ..Record::default() }
    }

    #[test]
    fn losses_with_one_reason_are_grouped() {
        let records = [
            lost(Outcome::Crashed, "run: worker crashed with SIGSEGV (11); end of its output:\nx", "relu 1"),
            lost(Outcome::WrongResult, "differs from the reference by up to 1.000e0 (relative 3.232e0)", "softmax"),
            lost(Outcome::WrongResult, "differs from the reference by up to 2.5e-3 (relative 1e2)", "conv2d 3"),
            Record::default(),
            lost(Outcome::TimedOut, "run: no reply within 2000 ms; the worker was killed", "conv2d 4"),
            lost(Outcome::WrongResult, "the scheduler of conv2d says no", "conv2d 5"),
        ];
        expect![[r#"
            2 wrong_result: differs from the reference by up to … (relative …) (such as softmax)
            1 crashed: run: worker crashed with SIGSEGV (…); end of its output: (such as relu 1)
            1 timed_out: run: no reply within … ms; the worker was killed (such as conv2d 4)
            1 wrong_result: the scheduler of conv2d says no (such as conv2d 5)
            the same command retries crashed and timed-out attempts, 2 times
        "#]]
        .assert_eq(&describe_losses(&group_losses(&records), 2));
    }

    #[test]
    fn rare_reasons_are_counted() {
        let letters = "abcdefghijkl".chars();
        let records: Vec<Record> =
            letters.map(|sign| lost(Outcome::BuildFailed, &format!("reason {sign}"), "x")).collect();
        let text = describe_losses(&group_losses(&records), 2);
        assert_eq!(
            (text.lines().count(), text.lines().last()),
            (9, Some("4 for other reasons; see the column `reason`"))
        );
    }
}
