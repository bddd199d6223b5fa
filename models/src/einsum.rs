//! Einstein notation: assigns a letter to each dimension of each operand. Equations are parsed only here; the shape
//! rule, the reference computation and the lowering use letters as numbers.

use crate::types::{Dim, TensorType};

/// A parsed equation for given operand shapes; letters and the dimensions of `...` are numbered from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Equation {
    /// The letter of each dimension of each operand.
    pub operands: Vec<Vec<usize>>,
    /// The letters of the result.
    pub output: Vec<usize>,
    /// The letters that are summed, in the order of their first use.
    pub summed: Vec<usize>,
    /// The extent of each letter.
    pub extents: Vec<Dim>,
}

impl Equation {
    /// Reads an equation for operands of these types.
    pub fn read_equation(equation: &str, inputs: &[&TensorType]) -> Result<Equation, String> {
        let equation: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
        let (left, right) = match equation.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (equation.as_str(), None),
        };
        let terms = left.split(',').map(Term::parse_term).collect::<Result<Vec<_>, _>>()?;
        if terms.len() != inputs.len() {
            return Err(format!("`{equation}` has {} operands, got {}", terms.len(), inputs.len()));
        }
        let mut letters = Letters::default();
        let mut dots_rank = 0;
        for (term, input) in terms.iter().zip(inputs) {
            dots_rank = dots_rank.max(term.dots_rank(input)?);
        }
        letters.dots = (0..dots_rank).collect();
        letters.extents = vec![Dim::Known(1); dots_rank];
        letters.names = vec![None; dots_rank];
        let mut operands = Vec::new();
        for (term, input) in terms.iter().zip(inputs) {
            operands.push(letters.operand_letters(term, input)?);
        }
        let output = match right {
            Some(right) => letters.output_letters(&Term::parse_term(right)?)?,
            None => letters.implied_output(&operands),
        };
        let summed = (0..letters.extents.len()).filter(|letter| !output.contains(letter)).collect();
        Ok(Equation { operands, output, summed, extents: letters.extents })
    }
}

/// One operand as written: letters before the dots, whether there are dots, letters after the dots.
struct Term {
    before: Vec<char>,
    has_dots: bool,
    after: Vec<char>,
}

impl Term {
    fn parse_term(text: &str) -> Result<Term, String> {
        let (before, after, has_dots) = match text.split_once("...") {
            Some((before, after)) => (before, after, true),
            None => (text, "", false),
        };
        match before.chars().chain(after.chars()).find(|c| !c.is_ascii_alphabetic()) {
            Some(sign) => Err(format!("`{sign}` in `{text}` is not a letter")),
            None => Ok(Term { before: before.chars().collect(), has_dots, after: after.chars().collect() }),
        }
    }

    fn letter_count(&self) -> usize {
        self.before.len() + self.after.len()
    }

    fn dots_rank(&self, input: &TensorType) -> Result<usize, String> {
        match input.rank().checked_sub(self.letter_count()) {
            Some(0) => Ok(0),
            Some(rank) if self.has_dots => Ok(rank),
            _ => Err(format!("{input} has {} dimensions, the equation names {}", input.rank(), self.letter_count())),
        }
    }
}

#[derive(Default)]
struct Letters {
    dots: Vec<usize>,
    names: Vec<Option<char>>,
    extents: Vec<Dim>,
}

impl Letters {
    fn operand_letters(&mut self, term: &Term, input: &TensorType) -> Result<Vec<usize>, String> {
        let dots = term.dots_rank(input)?;
        let (before, rest) = input.shape.split_at(term.before.len());
        let (middle, after) = rest.split_at(dots);
        let mut letters = Vec::with_capacity(input.rank());
        for (&name, dim) in term.before.iter().zip(before) {
            letters.push(self.letter_index(name, dim)?);
        }
        for (&letter, dim) in self.dots[self.dots.len() - dots..].iter().zip(middle) {
            let known = &mut self.extents[letter];
            if *known == Dim::Known(1) {
                *known = dim.clone();
            } else if known != dim && *dim != Dim::Known(1) {
                return Err(format!("extents {known} and {dim} under `...` do not broadcast"));
            }
            letters.push(letter);
        }
        for (&name, dim) in term.after.iter().zip(after) {
            letters.push(self.letter_index(name, dim)?);
        }
        Ok(letters)
    }

    fn letter_index(&mut self, name: char, dim: &Dim) -> Result<usize, String> {
        match self.names.iter().position(|known| *known == Some(name)) {
            Some(letter) if self.extents[letter] == *dim => Ok(letter),
            Some(letter) => Err(format!("letter `{name}` has the extents {} and {dim}", self.extents[letter])),
            None => {
                self.names.push(Some(name));
                self.extents.push(dim.clone());
                Ok(self.names.len() - 1)
            }
        }
    }

    fn output_letters(&self, term: &Term) -> Result<Vec<usize>, String> {
        let of = |name: &char| {
            let letter = self.names.iter().position(|known| *known == Some(*name));
            letter.ok_or_else(|| format!("letter `{name}` of the result occurs in no operand"))
        };
        let mut output = term.before.iter().map(of).collect::<Result<Vec<_>, _>>()?;
        if term.has_dots {
            output.extend(&self.dots);
        }
        output.extend(term.after.iter().map(of).collect::<Result<Vec<_>, _>>()?);
        let is_twice = (1..output.len()).any(|index| output[..index].contains(&output[index]));
        if is_twice { Err("a letter occurs twice in the result".to_owned()) } else { Ok(output) }
    }

    fn implied_output(&self, operands: &[Vec<usize>]) -> Vec<usize> {
        let uses = |letter: usize| operands.iter().flatten().filter(|used| **used == letter).count();
        let mut single: Vec<(char, usize)> = self
            .names
            .iter()
            .enumerate()
            .filter_map(|(letter, name)| name.filter(|_| uses(letter) == 1).map(|name| (name, letter)))
            .collect();
        single.sort_unstable();
        self.dots.iter().copied().chain(single.into_iter().map(|(_, letter)| letter)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Letters of the operands, of the result, and those that are summed.
    type Letters = (Vec<Vec<usize>>, Vec<usize>, Vec<usize>);

    fn read(equation: &str, types: &[&str]) -> Result<Letters, String> {
        let types: Vec<TensorType> = types.iter().map(|ty| ty.parse().unwrap()).collect();
        let equation = Equation::read_equation(equation, &types.iter().collect::<Vec<_>>())?;
        Ok((equation.operands, equation.output, equation.summed))
    }

    #[test]
    fn equations() {
        let product = read("ij,jk->ik", &["f32[2,3]", "f32[3,4]"]).unwrap();
        assert_eq!(product, (vec![vec![0, 1], vec![1, 2]], vec![0, 2], vec![1]));
        assert_eq!(read("ij, jk", &["f32[2,3]", "f32[3,4]"]).unwrap(), product);
        let batched = read("...ij,...jk->...ik", &["f32[5,1,2,3]", "f32[7,3,4]"]).unwrap();
        assert_eq!(batched, (vec![vec![0, 1, 2, 3], vec![1, 3, 4]], vec![0, 1, 2, 4], vec![3]));
        assert_eq!(read("ii", &["f32[3,3]"]).unwrap(), (vec![vec![0, 0]], vec![], vec![0]));
        assert_eq!(read("ba", &["f32[2,3]"]).unwrap(), (vec![vec![0, 1]], vec![1, 0], vec![]));
    }

    #[test]
    fn mistakes() {
        let says = |equation: &str| read(equation, &["f32[2,3]", "f32[4,5]"]).unwrap_err();
        assert_eq!(says("ij->i"), "`ij->i` has 1 operands, got 2");
        assert_eq!(says("ij,jk->ik"), "letter `j` has the extents 3 and 4");
        assert_eq!(says("ij,kl->ix"), "letter `x` of the result occurs in no operand");
        assert_eq!(says("ij,kl->ii"), "a letter occurs twice in the result");
        assert_eq!(says("i,kl->i"), "f32[2,3] has 2 dimensions, the equation names 1");
        assert_eq!(says("i1,kl->i"), "`1` in `i1` is not a letter");
        assert_eq!(says("...,...->..."), "extents 2 and 4 under `...` do not broadcast");
    }
}
