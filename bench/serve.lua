-- For wrk: a document a request, of a file with a JSON object a line; prints what it measured as JSON.

local lines, at = {}, 0

function init(args)
   local headers = { ["Content-Type"] = "application/json" }
   for line in io.lines(args[1]) do
      lines[#lines + 1] = wrk.format("POST", "/v1/documents", headers, line)
   end
end

function request()
   at = at % #lines + 1
   return lines[at]
end

function done(summary, latency, requests)
   local errors = summary.errors
   print(string.format(
      '{"requests": %d, "seconds": %f, "p50": %f, "p99": %f, "slowest": %f, "errors": %d}',
      summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
      latency.max / 1e3, errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
