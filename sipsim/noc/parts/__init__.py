"""Parts of a SIP made of cubes. A part is one module with its place and its costs, registered by its node kind."""
