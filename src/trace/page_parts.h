// The page's template, style and script, as embed.cmake makes them of the files in page/.
#pragma once

namespace coppice {

// Holds the marks <!--coppice:style-->, <!--coppice:data--> and <!--coppice:script-->, in this order.
extern const char kPageHtml[];
extern const char kPageCss[];
extern const char kPageJs[];

}  // namespace coppice
