//! Parses TorchScript's source by recursive descent.

use super::lexer::{Spanned, Token, split_tokens};
use super::syntax::{Call, Class, Expr, Function, Parameter, Source, Statement, StatementKind};

const MAX_DEPTH: usize = 96;

struct Parser<'a> {
    tokens: Vec<Spanned<'a>>,
    at: usize,
    depth: usize,
}

type Parsed<T> = Result<T, String>;

pub(super) fn parse_source(source: &str) -> Parsed<Source<'_>> {
    let mut parser = Parser { tokens: split_tokens(source)?, at: 0, depth: 0 };
    let mut parsed = Source::default();
    loop {
        match parser.peek_token() {
            Token::End => return Ok(parsed),
            Token::Newline => parser.at += 1,
            Token::Name("class") => {
                let class = parser.parse_class()?;
                parsed.classes.push(class);
            }
            Token::Name("def") => {
                let function = parser.parse_function()?;
                parsed.functions.push(function);
            }
            // Skips imports, and the operator versions of old files.
            Token::Name("import" | "op_version_set") => parser.skip_line(),
            _ => return Err(parser.unexpected("a class or a function")),
        }
    }
}

impl<'a> Parser<'a> {
    fn peek_token(&self) -> Token<'a> {
        self.tokens.get(self.at).map_or(Token::End, |spanned| spanned.token)
    }

    fn current_line(&self) -> u32 {
        self.tokens.get(self.at).map_or(0, |spanned| spanned.line)
    }

    fn advance(&mut self) -> Token<'a> {
        let token = self.peek_token();
        self.at += 1;
        token
    }

    fn unexpected(&self, expected: &str) -> String {
        let found = match self.peek_token() {
            Token::Name(text) | Token::Number(text) | Token::Symbol(text) => format!("`{}`", crate::escape_name(text)),
            Token::Text(_) => "a text".to_owned(),
            Token::Newline | Token::Indent | Token::Dedent => "the end of the line".to_owned(),
            Token::End => "the end of the file".to_owned(),
        };
        format!("line {}: expected {expected}, found {found}", self.current_line())
    }

    fn take_symbol(&mut self, symbol: &str) -> bool {
        let is_there = self.peek_token() == Token::Symbol(symbol);
        self.at += usize::from(is_there);
        is_there
    }

    fn expect_symbol(&mut self, symbol: &str) -> Parsed<()> {
        if self.take_symbol(symbol) { Ok(()) } else { Err(self.unexpected(&format!("`{symbol}`"))) }
    }

    fn takes_word(&mut self, word: &str) -> bool {
        let is_there = self.peek_token() == Token::Name(word);
        self.at += usize::from(is_there);
        is_there
    }

    fn take_name(&mut self) -> Parsed<&'a str> {
        match self.peek_token() {
            Token::Name(name) => {
                self.at += 1;
                Ok(name)
            }
            _ => Err(self.unexpected("a name")),
        }
    }

    fn end_of_line(&mut self) -> Parsed<()> {
        match self.advance() {
            Token::Newline => Ok(()),
            _ => {
                self.at -= 1;
                Err(self.unexpected("the end of the line"))
            }
        }
    }

    fn skip_line(&mut self) {
        while !matches!(self.advance(), Token::Newline | Token::End) {}
    }

    fn nest_part<T>(&mut self, part: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= MAX_DEPTH {
            return Err(format!("line {}: expressions are nested deeper than {MAX_DEPTH}", self.current_line()));
        }
        self.depth += 1;
        let parsed = part(self);
        self.depth -= 1;
        parsed
    }

    fn parse_class(&mut self) -> Parsed<Class<'a>> {
        self.at += 1;
        let name = self.take_name()?;
        self.expect_symbol("(")?;
        let base = if let Token::Name(base) = self.peek_token() { base } else { "" };
        self.at += usize::from(!base.is_empty());
        self.expect_symbol(")")?;
        self.expect_symbol(":")?;
        self.end_of_line()?;
        let mut class = Class { name, base, fields: Vec::new(), constants: Vec::new(), methods: Vec::new() };
        if self.peek_token() != Token::Indent {
            return Ok(class);
        }
        self.at += 1;
        loop {
            match self.peek_token() {
                Token::Dedent => {
                    self.at += 1;
                    return Ok(class);
                }
                Token::End => return Ok(class),
                Token::Name("def") => class.methods.push(self.parse_function()?),
                Token::Name(name) => self.parse_field(&mut class, name)?,
                Token::Newline => self.at += 1,
                _ => return Err(self.unexpected("an attribute or a method")),
            }
        }
    }

    /// Parses an attribute declaration, such as `weight : Tensor` or `p : Final[float] = 0.5`.
    fn parse_field(&mut self, class: &mut Class<'a>, name: &'a str) -> Parsed<()> {
        self.at += 1;
        if name == "pass" || name.starts_with("__") || self.peek_token() != Token::Symbol(":") {
            self.skip_line();
            return Ok(());
        }
        self.at += 1;
        self.parse_expression()?;
        class.fields.push(name);
        if self.take_symbol("=") {
            let value = self.parse_expression()?;
            class.constants.push((name, value));
        }
        self.end_of_line()
    }

    fn parse_function(&mut self) -> Parsed<Function<'a>> {
        self.at += 1;
        let name = self.take_name()?;
        self.expect_symbol("(")?;
        let mut parameters = Vec::new();
        while !self.take_symbol(")") {
            // A star marks the following parameters as keyword-only.
            if !self.take_symbol("*") {
                let name = self.take_name()?;
                let ty = if self.take_symbol(":") { Some(self.parse_expression()?) } else { None };
                let default = if self.take_symbol("=") { Some(self.parse_expression()?) } else { None };
                parameters.push(Parameter { name, ty, default });
            }
            if !self.take_symbol(",") && self.peek_token() != Token::Symbol(")") {
                return Err(self.unexpected("`,` or `)`"));
            }
        }
        if self.take_symbol("->") {
            self.parse_expression()?;
        }
        let body = self.parse_block()?;
        Ok(Function { name, parameters, body })
    }

    fn parse_block(&mut self) -> Parsed<Vec<Statement<'a>>> {
        self.expect_symbol(":")?;
        self.end_of_line()?;
        if self.peek_token() != Token::Indent {
            return Err(self.unexpected("a block"));
        }
        self.at += 1;
        self.nest_part(|parser| {
            let mut statements = Vec::new();
            loop {
                match parser.peek_token() {
                    Token::Dedent => {
                        parser.at += 1;
                        return Ok(statements);
                    }
                    Token::End => return Ok(statements),
                    Token::Newline => parser.at += 1,
                    _ => statements.push(parser.parse_statement()?),
                }
            }
        })
    }

    fn parse_statement(&mut self) -> Parsed<Statement<'a>> {
        let line = self.current_line();
        let word = if let Token::Name(name) = self.peek_token() { name } else { "" };
        self.at += 1;
        let kind = match word {
            "if" => return self.parse_conditional(line),
            "while" => StatementKind::While { condition: self.parse_expression()?, body: self.parse_block()? },
            "for" => {
                let target = self.parse_expressions()?.0;
                if !self.takes_word("in") {
                    return Err(self.unexpected("`in`"));
                }
                StatementKind::For { target, items: self.parse_expression()?, body: self.parse_block()? }
            }
            "with" => {
                let value = self.parse_expression()?;
                let target = if self.takes_word("as") { Some(self.take_name()?) } else { None };
                StatementKind::With { value, target, body: self.parse_block()? }
            }
            "return" if self.peek_token() == Token::Newline => StatementKind::Return(Expr::None),
            "return" => StatementKind::Return(self.parse_expressions()?.0),
            "pass" => StatementKind::Pass,
            "break" => StatementKind::Break,
            "continue" => StatementKind::Continue,
            "def" | "lambda" | "class" => return Err(format!("line {line}: nested functions are not supported")),
            _ => {
                self.at -= 1;
                self.parse_assignment()?
            }
        };
        if !matches!(kind, StatementKind::While { .. } | StatementKind::For { .. } | StatementKind::With { .. }) {
            self.end_of_line()?;
        }
        Ok(Statement { line, kind })
    }

    fn parse_conditional(&mut self, line: u32) -> Parsed<Statement<'a>> {
        let (condition, then) = (self.parse_expression()?, self.parse_block()?);
        let next = self.current_line();
        let otherwise = match () {
            () if self.takes_word("elif") => {
                let inner = self.nest_part(|parser| parser.parse_conditional(next))?;
                vec![inner]
            }
            () if self.takes_word("else") => self.parse_block()?,
            () => Vec::new(),
        };
        Ok(Statement { line, kind: StatementKind::If { condition, then, otherwise } })
    }

    /// Parses `a = x`, `a : T = x`, `a, b, = x`, or a single expression.
    fn parse_assignment(&mut self) -> Parsed<StatementKind<'a>> {
        let (target, is_unpacked) = self.parse_expressions()?;
        if self.take_symbol(":") {
            self.parse_expression()?;
        }
        if !self.take_symbol("=") {
            return Ok(StatementKind::Expr(target));
        }
        let value = self.parse_expressions()?.0;
        let targets = match target {
            Expr::Tuple(targets) if is_unpacked => targets,
            target => vec![target],
        };
        Ok(StatementKind::Assign { targets, is_unpacked, value })
    }

    /// Parses expressions separated by commas. Returns one expression or a tuple, and whether there was a comma.
    fn parse_expressions(&mut self) -> Parsed<(Expr<'a>, bool)> {
        let first = self.parse_expression()?;
        if self.peek_token() != Token::Symbol(",") {
            return Ok((first, false));
        }
        let mut all = vec![first];
        while self.take_symbol(",") {
            if matches!(self.peek_token(), Token::Newline | Token::Symbol("=" | ":"))
                || self.peek_token() == Token::Name("in")
            {
                break;
            }
            all.push(self.parse_expression()?);
        }
        Ok((Expr::Tuple(all), true))
    }

    fn parse_expression(&mut self) -> Parsed<Expr<'a>> {
        self.nest_part(|parser| {
            let mut parsed = parser.parse_atom()?;
            // Each link makes the tree one level deeper.
            for _ in 0..MAX_DEPTH {
                parsed = match parser.peek_token() {
                    Token::Symbol(".") => {
                        parser.at += 1;
                        Expr::Attribute(Box::new(parsed), parser.take_name()?)
                    }
                    Token::Symbol("[") => {
                        parser.at += 1;
                        let index = parser.parse_elements("]")?;
                        let index = one_or_tuple(index);
                        Expr::Index(Box::new(parsed), Box::new(index))
                    }
                    Token::Symbol("(") => {
                        parser.at += 1;
                        parser.parse_call(parsed)?
                    }
                    _ => return Ok(parsed),
                };
            }
            Err(format!("line {}: more than {MAX_DEPTH} attributes and calls in a row", parser.current_line()))
        })
    }

    fn parse_call(&mut self, callee: Expr<'a>) -> Parsed<Expr<'a>> {
        let (mut arguments, mut keywords) = (Vec::new(), Vec::new());
        while !self.take_symbol(")") {
            let is_named = self.tokens.get(self.at + 1).is_some_and(|next| next.token == Token::Symbol("="));
            match self.peek_token() {
                Token::Name(name) if is_named => {
                    self.at += 2;
                    keywords.push((name, self.parse_expression()?));
                }
                _ => arguments.push(self.parse_expression()?),
            }
            if !self.take_symbol(",") && self.peek_token() != Token::Symbol(")") {
                return Err(self.unexpected("`,` or `)`"));
            }
        }
        Ok(Expr::Call(Box::new(Call { callee, arguments, keywords })))
    }

    fn parse_elements(&mut self, close: &str) -> Parsed<(Vec<Expr<'a>>, bool)> {
        let (mut elements, mut has_comma) = (Vec::new(), false);
        while !self.take_symbol(close) {
            elements.push(self.parse_expression()?);
            if self.take_symbol(",") {
                has_comma = true;
            } else if self.peek_token() != Token::Symbol(close) {
                return Err(self.unexpected(&format!("`,` or `{close}`")));
            }
        }
        Ok((elements, has_comma))
    }

    fn parse_atom(&mut self) -> Parsed<Expr<'a>> {
        Ok(match self.advance() {
            Token::Name("None") => Expr::None,
            Token::Name("True") => Expr::Bool(true),
            Token::Name("False") => Expr::Bool(false),
            Token::Name("inf") => Expr::Float(f64::INFINITY),
            Token::Name("nan") => Expr::Float(f64::NAN),
            Token::Name(name) => Expr::Name(name),
            Token::Number(text) => self.parse_number(text, "")?,
            Token::Symbol("-") => match self.advance() {
                Token::Number(text) => self.parse_number(text, "-")?,
                Token::Name("inf") => Expr::Float(f64::NEG_INFINITY),
                Token::Name("nan") => Expr::Float(f64::NAN),
                _ => return Err(self.unexpected_before("a number")),
            },
            Token::Text(raw) => self.join_texts(raw),
            Token::Symbol("(") => one_or_tuple(self.parse_elements(")")?),
            Token::Symbol("[") => Expr::List(self.parse_elements("]")?.0),
            Token::Symbol("{") => self.parse_dict()?,
            _ => return Err(self.unexpected_before("an expression")),
        })
    }

    fn unexpected_before(&mut self, expected: &str) -> String {
        self.at -= 1;
        self.unexpected(expected)
    }

    fn parse_number(&self, text: &str, sign: &str) -> Parsed<Expr<'a>> {
        let signed = format!("{sign}{text}");
        if let Ok(number) = signed.parse::<i64>() {
            return Ok(Expr::Int(number));
        }
        match signed.parse::<f64>() {
            Ok(number) => Ok(Expr::Float(number)),
            Err(_) => Err(format!("line {}: `{}` is not a number", self.current_line(), crate::escape_name(text))),
        }
    }

    fn join_texts(&mut self, first: &str) -> Expr<'a> {
        let mut text = unescape_text(first);
        while let Token::Text(more) = self.peek_token() {
            self.at += 1;
            text.push_str(&unescape_text(more));
        }
        Expr::Text(text)
    }

    fn parse_dict(&mut self) -> Parsed<Expr<'a>> {
        let mut entries = Vec::new();
        while !self.take_symbol("}") {
            let key = self.parse_expression()?;
            self.expect_symbol(":")?;
            entries.push((key, self.parse_expression()?));
            if !self.take_symbol(",") && self.peek_token() != Token::Symbol("}") {
                return Err(self.unexpected("`,` or `}`"));
            }
        }
        Ok(Expr::Dict(entries))
    }
}

fn one_or_tuple((mut elements, has_comma): (Vec<Expr<'_>>, bool)) -> Expr<'_> {
    match elements.pop() {
        Some(only) if elements.is_empty() && !has_comma => only,
        Some(last) => {
            elements.push(last);
            Expr::Tuple(elements)
        }
        None => Expr::Tuple(elements),
    }
}

fn unescape_text(raw: &str) -> String {
    let mut text = String::with_capacity(raw.len());
    let mut chars = raw.chars();
    while let Some(sign) = chars.next() {
        if sign != '\\' {
            text.push(sign);
            continue;
        }
        match chars.next() {
            Some('n') => text.push('\n'),
            Some('t') => text.push('\t'),
            Some('r') => text.push('\r'),
            Some(other) => text.push(other),
            None => {}
        }
    }
    text
}
