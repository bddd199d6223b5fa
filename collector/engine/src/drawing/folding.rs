//! Folds repeated blocks of boxes, such as a transformer's layers: one box replaces the repetitions of the first.

use super::Card;
use report::format_percent;
use std::ops::Range;

const MIN_REPETITIONS: usize = 3;
const MIN_FOLDED_BOXES: usize = 6;

/// A block of consecutive boxes that is repeated `times` times without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    first: usize,
    length: usize,
    times: usize,
}

pub(super) struct FoldedDrawing {
    /// Indices of the boxes that are shown, in topological order.
    pub shown: Vec<usize>,
    /// Edges as pairs of positions in `shown`.
    pub edges: Vec<(usize, usize)>,
}

/// Replaces the repetitions of each block by one box, which is appended to `cards`. None if nothing repeats.
pub(super) fn fold_cards(cards: &mut Vec<Card>, edges: &[(usize, usize)]) -> Option<FoldedDrawing> {
    let count = cards.len();
    let mut blocks = Vec::new();
    find_blocks(&card_keys(cards), 0..count, &mut blocks);
    blocks.sort_by_key(|block| block.first);
    if blocks.is_empty() {
        return None;
    }
    let (mut shown, mut place_of) = (Vec::new(), vec![0; count]);
    let mut next = 0;
    for block in &blocks {
        let begin = block.first + block.length;
        let end = block.first + block.length * block.times;
        for (card, place) in place_of.iter_mut().enumerate().take(begin).skip(next) {
            *place = shown.len();
            shown.push(card);
        }
        place_of[begin..end].fill(shown.len());
        shown.push(cards.len());
        let share = cards[begin..end].iter().map(|card| card.share).sum();
        cards.push(repetition_card(block, share));
        next = end;
    }
    // A result of a folded box alone says nothing.
    for card in next..count {
        let is_of_fold = |place: usize| shown[place] >= count;
        let mut sources = edges.iter().filter(|(_, to)| *to == card).map(|(from, _)| place_of[*from]).peekable();
        if cards[card].style == "output" && sources.peek().is_some() && sources.all(is_of_fold) {
            place_of[card] = usize::MAX;
            continue;
        }
        place_of[card] = shown.len();
        shown.push(card);
    }
    let moved = |&(from, to): &(usize, usize)| Some((place_of[from], place_of[to])).filter(|(from, to)| from < to);
    let mut edges: Vec<(usize, usize)> = edges.iter().filter_map(moved).filter(|(_, to)| *to != usize::MAX).collect();
    edges.sort_unstable();
    edges.dedup();
    Some(FoldedDrawing { shown, edges })
}

/// Returns the keys by which boxes are compared; None for model inputs and outputs, which no block contains.
fn card_keys(cards: &[Card]) -> Vec<Option<(&'static str, &str, &str)>> {
    let is_inner = |card: &&Card| !matches!(card.style, "input" | "output");
    cards
        .iter()
        .map(|card| Some(card).filter(is_inner).map(|card| (card.style, &*card.title, &*card.subtitle)))
        .collect()
}

/// Finds the block that covers most boxes of a range, and recursively those in the ranges before and after it.
fn find_blocks<Key: PartialEq>(keys: &[Option<Key>], range: Range<usize>, found: &mut Vec<Block>) {
    let Some(best) = longest_block(keys, range.clone()) else { return };
    find_blocks(keys, range.start..best.first, found);
    find_blocks(keys, best.first + best.length * best.times..range.end, found);
    found.push(best);
}

/// Returns the block whose repetitions cover the most boxes; among equals, the one with the shortest period.
fn longest_block<Key: PartialEq>(keys: &[Option<Key>], range: Range<usize>) -> Option<Block> {
    let mut best: Option<Block> = None;
    for length in 1..=range.len() / MIN_REPETITIONS {
        let mut alike = 0;
        for at in range.start..=range.end - length {
            let is_alike = at + length < range.end && keys[at].is_some() && keys[at] == keys[at + length];
            if is_alike {
                alike += 1;
                continue;
            }
            let times = alike / length + 1;
            let block = Block { first: at - alike, length, times };
            let covers = |block: &Block| block.length * block.times;
            let is_enough = times >= MIN_REPETITIONS && covers(&block) - length >= MIN_FOLDED_BOXES;
            if is_enough && best.as_ref().is_none_or(|best| covers(&block) > covers(best)) {
                best = Some(block);
            }
            alike = 0;
        }
    }
    best
}

fn repetition_card(block: &Block, share: f64) -> Card {
    let (more, length) = (block.times - 1, block.length);
    let boxes = if length == 1 { "box".to_owned() } else { format!("{length} boxes") };
    Card {
        style: "fold",
        title: format!("{more} more times"),
        subtitle: format!("the {boxes} above"),
        facts: vec![
            ("repeats", format!("the {boxes} above occur {} times in a row", block.times)),
            ("of the model", format_percent(share)),
        ],
        share,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(style: &'static str, title: &str) -> Card {
        Card { style, title: title.to_owned(), subtitle: String::new(), facts: Vec::new(), share: 0.1 }
    }

    #[test]
    fn repeated_blocks_become_one_box() {
        let mut cards = vec![card("input", "x"), card("movement", "gather")];
        for _ in 0..4 {
            cards.extend(["norm", "dense", "add"].map(|title| card("contraction", title)));
        }
        cards.extend([card("normalisation", "last"), card("output", "a"), card("output", "b")]);
        // A chain, a residual of each block, a result at the end and one of the third block.
        let mut edges: Vec<(usize, usize)> = (0..15).map(|at| (at, at + 1)).collect();
        edges.extend((0..4).map(|block| (1 + 3 * block, 4 + 3 * block)));
        edges.push((10, 16));
        let folded = fold_cards(&mut cards, &edges).expect("four equal blocks");
        let titles: Vec<&str> = folded.shown.iter().map(|&card| cards[card].title.as_str()).collect();
        assert_eq!(titles, ["x", "gather", "norm", "dense", "add", "3 more times", "last", "a"]);
        assert_eq!(folded.edges, [(0, 1), (1, 2), (1, 4), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7)]);
        assert!((cards[folded.shown[5]].share - 0.9).abs() < 1e-9);
    }

    #[test]
    fn drawings_without_repetition_are_unchanged() {
        let mut cards: Vec<Card> = ["a", "b", "a", "b", "c", "d"].map(|title| card("pool", title)).into();
        assert!(fold_cards(&mut cards, &[(0, 1)]).is_none());
        assert_eq!(cards.len(), 6);
    }
}
