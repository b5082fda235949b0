module pronghorn.test/ecosystem

go 1.26.0
