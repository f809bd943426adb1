//! Common frame of all plots: sheet, title, axes and legend strip.

use super::PlotError;
use super::axis::Span;
use plotters::chart::ChartContext;
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::prelude::*;

const SHEET: (u32, u32) = (960, 480);
/// Width of the strip for the legend.
const LEGEND: u32 = 250;
const LINE: i32 = 22;

/// Colours that people with any colour vision can distinguish (the first seven by Okabe and Ito,
/// the others by Tol).
const COLOURS: [RGBColor; 12] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
    RGBColor(136, 34, 85),
    RGBColor(51, 34, 136),
    RGBColor(153, 153, 51),
    RGBColor(221, 204, 119),
    RGBColor(17, 85, 51),
];

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(super) type Drawing<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<Span, Span>>;
/// Error of a drawing operation.
pub(super) type Refused = Box<dyn std::error::Error>;

pub(super) fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}

/// One entry of the legend.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) colour: RGBColor,
    pub(super) sample: Sample,
}

/// Sample of an entry's style.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sample {
    Line,
    Dashed,
    Point,
    Box,
}

/// Axis of a sheet.
pub(super) struct LabelledSpan<'a> {
    pub(super) label: &'a str,
    pub(super) span: Span,
}

/// Draws the sheet with title, axes and legend; `draw` draws the content.
pub(super) fn sheet(
    title: &str,
    x: LabelledSpan<'_>,
    y: LabelledSpan<'_>,
    entries: &[Entry],
    draw: impl FnOnce(&mut Drawing<'_>) -> Result<(), Refused>,
) -> Result<String, PlotError> {
    let mut text = String::new();
    let drawn = (|| -> Result<(), Refused> {
        let root = SVGBackend::with_string(&mut text, SHEET).into_drawing_area();
        root.fill(&WHITE)?;
        let (plot, strip) = root.split_horizontally(SHEET.0 - LEGEND);
        let mut chart = ChartBuilder::on(&plot)
            .caption(title, ("sans-serif", 19))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(x.span, y.span)?;
        chart
            .configure_mesh()
            .x_desc(x.label)
            .y_desc(y.label)
            .bold_line_style(RGBColor(225, 225, 225))
            .axis_desc_style(("sans-serif", 15))
            .label_style(("sans-serif", 13))
            .x_labels(8)
            .y_labels(7)
            .draw()?;
        draw(&mut chart)?;
        legend(&strip, entries)?;
        root.present()?;
        Ok(())
    })();
    drawn.map_err(|reason| PlotError::Drawing { title: title.to_owned(), reason: reason.to_string() })?;
    Ok(text)
}

fn legend(strip: &Area<'_>, entries: &[Entry]) -> Result<(), Refused> {
    for (index, entry) in entries.iter().enumerate() {
        let y = 56 + LINE * index as i32;
        let line = [(6, y), (34, y)];
        let style = entry.colour.stroke_width(2);
        match entry.sample {
            Sample::Line => strip.draw(&PathElement::new(line, style))?,
            Sample::Dashed => {
                for x in [6, 17, 28] {
                    strip.draw(&PathElement::new([(x, y), (x + 6, y)], style))?;
                }
            }
            Sample::Point => strip.draw(&Circle::new((20, y), 4, entry.colour.filled()))?,
            Sample::Box => strip.draw(&Rectangle::new([(12, y - 6), (28, y + 6)], entry.colour.filled()))?,
        }
        strip.draw(&Text::new(entry.name.clone(), (42, y - 7), ("sans-serif", 13)))?;
    }
    Ok(())
}
